"""ALFWorld: household tasks in houses described by text."""
