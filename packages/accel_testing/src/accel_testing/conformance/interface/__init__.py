"""Level 1: checks that every member exists, and returns what the interface documents."""
