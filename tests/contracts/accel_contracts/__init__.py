"""Whether what a plugin uses of its vendor is there: its source is read and held against the surface."""
