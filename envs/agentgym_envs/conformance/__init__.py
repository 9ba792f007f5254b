"""Properties that every environment must have, as checks that run on any environment."""
