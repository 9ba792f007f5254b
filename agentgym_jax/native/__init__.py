"""Machine code of our own, where XLA's is far from what the machine can do; CPU only."""
