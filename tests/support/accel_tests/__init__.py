"""What the tests build for real: distributions on disk, child processes, a simulated torch and device."""
