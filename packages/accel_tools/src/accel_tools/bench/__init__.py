"""Measure how fast an accelerator is: copies, matrices, launches, collectives, each a `Measurement`.

This package prints nothing. Importing it does not import torch.
"""
