"""Serving of a policy to programs that talk to a chat endpoint."""
