"""Progress on the console, metrics, loggers, and redaction of secrets."""
