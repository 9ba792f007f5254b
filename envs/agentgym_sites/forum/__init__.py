"""django-spirit as the forum (WebArena's `reddit`)."""
