"""Experiments of `accel doctor`: run the smallest program with one change, and compare the outcomes."""
