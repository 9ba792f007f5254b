"""C++ functions for operations that XLA computes slowly on CPU."""
