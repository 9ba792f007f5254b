"""Trac as the collaborative development site (WebArena's `gitlab`)."""
