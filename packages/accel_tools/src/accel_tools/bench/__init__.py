"""Measure how fast an accelerator copies, multiplies matrices, launches kernels and communicates.

Each result is a `Measurement`. This package prints nothing. Importing it does not import torch.
"""
