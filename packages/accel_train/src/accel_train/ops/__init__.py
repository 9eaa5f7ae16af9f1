"""Provide DeepSpeed's optimizer operators for every device, implemented with torch's functions."""
