"""HTTP client of environment servers and the thread pool that talks to many at once."""
