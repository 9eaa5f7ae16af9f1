"""Operators beyond torch's own, written with torch's functions."""
