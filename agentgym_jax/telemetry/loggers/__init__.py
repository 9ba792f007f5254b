"""Loggers that send metrics to dashboards, in addition to metrics.jsonl; each is an optional
dependency.
"""
