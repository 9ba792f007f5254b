"""Run folders on a disk or in a bucket, without JAX."""
