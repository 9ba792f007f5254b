"""Tasks on the embedded sites, in WebArena's format, each with a scripted solution."""
