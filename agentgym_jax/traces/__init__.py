"""Recorded episodes in the trace formats of other projects: ATIF and OpenEnv's TrainingTrace."""
