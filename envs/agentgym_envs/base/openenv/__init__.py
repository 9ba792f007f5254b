"""OpenEnv's protocol: one WebSocket connection per session, and HTTP routes for facts and tasks."""
