"""Training of outside agent programs through a chat endpoint."""
