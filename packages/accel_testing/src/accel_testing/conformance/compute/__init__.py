"""Level 2: results of computations, memory, streams and random numbers."""
