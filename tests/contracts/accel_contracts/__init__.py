"""Whether what a plugin uses of its vendor is there: its source read, and itself run on a recorder."""
