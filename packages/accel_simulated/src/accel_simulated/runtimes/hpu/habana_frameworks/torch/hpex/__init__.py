"""Habana's own kernels: names that frameworks import."""
