"""Kernels for accelerators; each has a plain JAX reference in `models`."""
