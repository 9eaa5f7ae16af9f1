"""Operators beyond torch's own: portable ones, compiled ones, and what compiles them."""
