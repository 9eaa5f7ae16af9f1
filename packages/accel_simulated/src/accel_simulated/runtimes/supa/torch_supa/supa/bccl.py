"""`torch.supa.bccl`, simulated. The surface file does not tell what is in it."""
