"""Environment from any MCP server over stdio, with tasks from a file."""
