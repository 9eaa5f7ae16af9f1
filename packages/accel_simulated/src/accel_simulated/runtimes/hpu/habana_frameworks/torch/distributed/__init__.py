"""`habana_frameworks.torch.distributed`, simulated."""
