"""Operators beyond torch's own: portable ones, compiled ones, and who provides which."""
