"""Level 1: every member is there, and gives what the interface promises."""
