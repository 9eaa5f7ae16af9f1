"""Call functions of torch that only CUDA devices support, and print the errors by name."""

import json
from multiprocessing.reduction import ForkingPickler

import torch
import torch.multiprocessing
from torch import nn

x = torch.ones(2, 2, device="acme")


def error_of(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


print(
    json.dumps(
        {
            "fused kernel": error_of(lambda: torch._fused_dropout(x, 0.5)),
            "CPU generator": error_of(
                lambda: torch.rand(2, generator=torch.Generator(), device="acme")
            ),
            "sending a tensor": error_of(lambda: ForkingPickler.dumps(x)),
            "DataParallel": error_of(
                lambda: nn.DataParallel(nn.Linear(2, 2).to("acme"))(x)
            ),
            "dtype of a product with out_dtype": str(
                torch.mm(x.half(), x.half(), out_dtype=torch.float32).dtype
            ),
        }
    )
)
