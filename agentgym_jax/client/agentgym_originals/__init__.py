"""Descriptions of AgentGym's fifteen original servers, which do not describe themselves."""
