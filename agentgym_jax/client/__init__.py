"""HTTP client of environment servers, and the thread pool that calls many servers concurrently."""
