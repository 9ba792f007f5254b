"""Web navigation: tasks on web sites, played in a real browser, in WebArena's format."""
