"""Who is found behind the real torch.cuda, for each way in which packages take it over.

What else rules the declarations out is told in `tests/detection/test_facts.py`.
"""

import json

import pytest

from accel_core import hidden_by
from accel_cuda import ROCM

OTHER = "torch_vendor.transfer"
WRAPPED = "@functools.wraps(torch.cuda.is_available)\ndef f(): return True\ntorch.cuda.is_available = f"
#: The package that does it when it is imported, what it runs, and who is found.
WAYS = [
    ("torch", "", ""),
    (OTHER, "torch.cuda.device_count = lambda: 8", OTHER),
    (OTHER, WRAPPED, OTHER),
    (
        OTHER,
        "def own(n): return n\ntorch.cuda.current_device = functools.partial(own, 0)",
        OTHER,
    ),
    (OTHER, "torch.cuda = types.ModuleType(__name__)", OTHER),
    # Hugging Face's ZeroGPU, with CUDA behind it.
    ("spaces", "torch.cuda.is_available = lambda: True", ""),
]
FIND = """
import functools, json, types, torch
from accel_cuda import CUDA, ROCM
from accel_core.checks import namespace_owner
from accel_testing.conformance.forks import run_in_fork

def found(name, source):
    exec(source, {{"torch": torch, "functools": functools, "types": types, "__name__": name}})
    return json.dumps([namespace_owner(CUDA), namespace_owner(ROCM)])

print(json.dumps([json.loads(run_in_fork(lambda: found(*way), 60)[0]) for way in {ways!r}]))
"""


def test_who_overrides_torch_cuda(child):
    pytest.importorskip("torch")
    owners = json.loads(child(FIND.format(ways=[way[:2] for way in WAYS])))
    for (package, source, owner), (of_cuda, of_rocm) in zip(WAYS, owners, strict=True):
        assert of_cuda == owner, (package, source)
        assert of_rocm == owner, (package, source)


HIDDEN = [
    ({"HIP_VISIBLE_DEVICES": ""}, "HIP_VISIBLE_DEVICES"),
    ({"CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES"),
    ({"ROCR_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "0"}, "ROCR_VISIBLE_DEVICES"),
    ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": ""}, ""),
]


@pytest.mark.parametrize(("environ", "culprit"), HIDDEN)
def test_rocm_has_variables_of_its_own(environ, culprit):
    assert (hidden_by(ROCM, environ) or "").partition("=")[0] == culprit
