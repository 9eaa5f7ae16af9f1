"""`torch_musa.core`, simulated."""
