"""Level 2: what the device computes, and what it says of its memory, streams and random numbers."""
