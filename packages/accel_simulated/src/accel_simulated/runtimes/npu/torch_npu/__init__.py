"""A simulation of Huawei's torch_npu for tests, with the names in its surface file.

Operators of `torch_npu` exist only as names, if public frameworks use them, and cannot be called. `contrib`,
the profiler and the compilers are not simulated.
"""

from accel_simulated import vendor_package

__version__ = "2.13.0+simulated"


def _autoload():
    """Do nothing. torch calls this function on import, but importing the package did all the work."""


vendor_package.load_device("npu")

import torch_npu.npu
import torch_npu.npu.amp

vendor_package.register_module(torch_npu.npu)

# Transformers, diffusers, verl, ms-swift and LLaMA-Factory use these names.
globals().update(
    vendor_package.unsupported_operators(
        "torch_npu",
        "npu_cross_entropy_loss",
        "npu_dynamic_mx_quant",
        "npu_fusion_attention",
        "npu_fusion_attention_grad",
        "npu_geglu",
        "npu_grouped_matmul",
        "npu_moe_init_routing_v2",
        "npu_moe_token_permute",
        "npu_moe_token_unpermute",
        "npu_rms_norm",
        "npu_rotary_mul",
        "npu_swiglu",
    )
)
