"""Sweeps: many training runs described by one file, run or submitted together, and their report."""
