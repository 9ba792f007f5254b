"""What every environment promises, as properties that can be tried on any of them."""
