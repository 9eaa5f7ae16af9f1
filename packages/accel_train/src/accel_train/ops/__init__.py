"""Provide DeepSpeed's optimizer operators for every device, written with torch's functions."""
