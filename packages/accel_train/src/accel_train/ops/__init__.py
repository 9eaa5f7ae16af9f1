"""Operators beyond torch's own: portable ones, compiled ones, and the code that compiles them."""
