"""Level 4: frameworks, where they are installed."""
