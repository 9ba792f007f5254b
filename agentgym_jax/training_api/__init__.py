"""Training by calls of Tinker's API: wire, models in training, saved weights and HTTP routes."""
