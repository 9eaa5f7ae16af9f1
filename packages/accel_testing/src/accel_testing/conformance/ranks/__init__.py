"""Level 3: two ranks."""
