"""Web navigation: tasks on web sites in a real browser, in WebArena's format."""
