"""Names of the forum's members, and texts of their topics, comments and private topics."""

from agentgym_envs import data_files

AGENT = "copper_otter"  # member who is logged in
PASSWORD = "harbour-2024"
MODERATOR = "moderator"
SITE_NAME = "Harbour Forum"
WORDS = data_files.beside(__file__)
