"""Code shared by all environment servers."""
