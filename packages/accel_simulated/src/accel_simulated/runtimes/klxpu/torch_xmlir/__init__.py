"""A simulated torch_xmlir: it leaves torch.cuda's functions torch's own, as the vendor's does.

What the vendor's replaces elsewhere in torch is not here: `torch.compile`, `torch.nn.Linear`, `nccl`.
"""

import torch

assert torch.cuda.is_available.__module__ == "torch.cuda"
