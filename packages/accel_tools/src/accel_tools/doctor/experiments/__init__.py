"""Experiments of `accel doctor`: run the smallest program with one thing changed, and compare."""
