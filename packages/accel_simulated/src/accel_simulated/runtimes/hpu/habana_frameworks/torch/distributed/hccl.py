"""The module whose import registers the collective backend, which the package has already registered."""
