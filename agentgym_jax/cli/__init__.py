"""Start of the commands: flags, help and errors of one line."""
