"""A simulated torch_xmlir, which leaves the functions of torch.cuda unchanged, as the vendor's package does.

The vendor's replacements elsewhere in torch (`torch.compile`, `torch.nn.Linear`, `nccl`) are not simulated.
"""

import torch

assert torch.cuda.is_available.__module__ == "torch.cuda"
