"""`habana_frameworks.torch.utils`, simulated."""
