"""What torch chooses by the device type's name, chosen as for the CPU: kernels are compared, not choices."""

import dataclasses

import torch


def settled(value, dtype):
    """Give `value` with what `linear_cross_entropy` takes from a table of device types made explicit.

    `torch/nn/modules/linear_cross_entropy_options.py` (2.13): cpu, cuda and others accumulate in other types.
    """
    if isinstance(value, dict):
        return {key: settled(each, dtype) for key, each in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(settled(each, dtype) for each in value)
    if type(value).__name__ != "LinearCrossEntropyOptions" or dtype not in (
        torch.bfloat16,
        torch.float16,
    ):
        return value
    chosen = {}
    if value.acc_policy == "auto":
        chosen["acc_policy"] = "accurate"
    if value.chunking_method == "auto":
        chosen["chunking_method"] = (
            None if value.batch_chunk_size is not None else "aspect_ratio"
        )
    if value.acc_dtype is None:
        chosen["acc_dtype"] = torch.float32
    return dataclasses.replace(value, **chosen)
