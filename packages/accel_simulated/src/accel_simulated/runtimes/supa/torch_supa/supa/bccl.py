"""`torch.supa.bccl`, simulated as an empty module, because the surface file does not list its names."""
