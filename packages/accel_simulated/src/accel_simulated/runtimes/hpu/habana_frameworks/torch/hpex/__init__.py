"""Habana's kernels, as names that frameworks import."""
