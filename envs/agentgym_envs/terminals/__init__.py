"""Terminal tasks: shell commands in a sandbox, scored by hidden tests."""
