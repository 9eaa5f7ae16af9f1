"""Level 3: checks with two ranks."""
