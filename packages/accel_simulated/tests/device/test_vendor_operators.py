"""Operators of vendors' packages exist as names that cannot be called."""

NAMES = """
import json, torch_npu

said = {}
for name in ("npu_fusion_attention", "npu_rms_norm", "npu_swiglu"):
    try:
        getattr(torch_npu, name)(1, scale=2)
    except NotImplementedError as error:
        said[name] = str(error)
print(json.dumps(said))
"""


def test_calling_an_operator_of_ascend_raises_an_error_that_names_it(simulated):
    for name, said in simulated("npu", NAMES).answer.items():
        assert said.startswith(
            f"torch_npu.{name} is not simulated, because it is one of the vendor's kernels."
        )


ATTENTION_OF_GAUDI = """
import json
import habana_frameworks.torch
from habana_frameworks.torch.hpex.kernels import FusedSDPA

try:
    FusedSDPA.apply(1, 2, 3)
except NotImplementedError as error:
    print(json.dumps(str(error)))
"""


def test_calling_gaudis_attention_raises_an_error_that_names_it(simulated):
    said = simulated("hpu", ATTENTION_OF_GAUDI).answer
    assert said.startswith(
        "habana_frameworks.torch.hpex.kernels.FusedSDPA is not simulated, because "
    )
