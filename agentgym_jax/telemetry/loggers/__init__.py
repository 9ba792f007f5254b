"""Loggers that send metrics to dashboards; their packages are optional dependencies."""
