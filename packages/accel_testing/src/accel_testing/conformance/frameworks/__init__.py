"""Level 4: checks with each framework that is installed."""
