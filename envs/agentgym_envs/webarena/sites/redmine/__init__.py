"""Redmine of Debian's package as the collaborative development site (WebArena's `gitlab`)."""
