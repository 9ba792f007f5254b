"""What every environment server shares."""
