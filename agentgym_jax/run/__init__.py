"""Run: every part that a job needs, built from one config. The only reader of a ConfigDict."""
