"""Trac as the site for collaborative development (it replaces WebArena's `gitlab`)."""
