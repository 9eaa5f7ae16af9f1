"""Level 2: checks of computations, memory, streams and random numbers."""
