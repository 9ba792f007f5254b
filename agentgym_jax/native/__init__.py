"""C++ functions for CPUs, for operations in which XLA is far slower than the machine allows."""
