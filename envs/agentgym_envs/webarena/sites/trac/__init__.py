"""Trac as the collaborative development site (WebArena's `gitlab`) where there is no Redmine."""
