"""Level 1: every member exists, and returns what the interface promises."""
