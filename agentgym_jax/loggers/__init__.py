"""Where metrics go beside metrics.jsonl: other people's dashboards, each an optional dependency."""
