"""All training jobs, chosen by a config."""
