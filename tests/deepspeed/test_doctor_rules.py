"""What the doctor says that DeepSpeed would choose by itself is what it chooses.

Its own function runs in one process, over torch and vendors' modules that answer as each case says.
"""

from __future__ import annotations

from pathlib import Path

from accel_testing import children

from accel_core.doctor.frameworks import FRAMEWORKS, Here

#: Devices that are usable, vendors' modules that import, those that fail, and variables.
CASES: list[tuple[list[str], list[str], list[str], dict[str, str]]] = [
    ([], [], [], {}),
    (["cuda"], [], [], {}),
    (["xpu", "cuda"], [], [], {}),
    (["xpu", "npu"], ["torch_npu"], [], {}),
    (["cuda"], ["torch_npu"], [], {}),
    (["cuda"], [], ["torch_npu"], {}),
    (["cuda"], ["torch_sdaa", "torch_mlu"], [], {}),
    (["mlu"], ["torch_mlu"], [], {}),
    (["mps"], [], [], {}),
    ([], ["torch_supa"], [], {}),
    (["supa", "cuda"], ["torch_supa"], [], {}),
    ([], [], ["torch_mlu"], {}),
    ([], [], [], {"DS_ACCELERATOR": "cuda"}),
    (["cuda"], [], [], {"DS_ACCELERATOR": "cpu"}),
    (["cuda"], [], [], {"DS_ACCELERATOR": "npu"}),
    (["cuda"], [], [], {"DS_ACCELERATOR": "xpu"}),
    (["cuda"], [], [], {"DS_ACCELERATOR": "CUDA"}),
    (["cuda"], [], [], {"DS_ACCELERATOR": "cuda,cpu"}),
    (["cuda"], [], [], {"DS_ACCELERATOR": ""}),
    ([], ["torch_npu"], [], {"DS_ACCELERATOR": "npu"}),
]

CHILD = """
import importlib.machinery, json, logging, os, sys, types
cases = {cases!r}
import torch
from deepspeed.accelerator import real_accelerator

class Failing:
    def find_spec(self, name, path=None, target=None):
        if name in failing:
            return importlib.machinery.ModuleSpec(name, self)
    def create_module(self, spec): ...
    def exec_module(self, module):
        raise RuntimeError("it is broken")

failing = []
sys.meta_path.insert(0, Failing())
logging.disable()

def current_allocated_memory():
    if "mps" not in available:
        raise RuntimeError("no MPS")
    return 0

torch.mps.current_allocated_memory = current_allocated_memory
for available, importable, broken, environ in cases:
    failing[:] = broken
    for module in importable:
        name = module.removeprefix("torch_")
        device = types.ModuleType("torch." + name)
        device.is_available = lambda there=name in available: there
        sys.modules[module], sys.modules[device.__name__] = types.ModuleType(module), device
        setattr(torch, name, device)
    for own in (torch.cuda, torch.xpu):
        there = own.__name__.partition(".")[2] in available
        own.is_available, own.device_count = lambda there=there: there, lambda there=there: int(there)
    os.environ.update(environ)
    real_accelerator.ds_accelerator = None
    try:
        answer = [real_accelerator.get_accelerator()._name, ""]
    except Exception as error:
        answer = ["", str(error)]
    print("ANSWER", json.dumps(answer))
    for module in importable:
        name = module.removeprefix("torch_")
        del sys.modules[module], sys.modules["torch." + name]
        delattr(torch, name)
    for name in environ:
        del os.environ[name]
"""


def test_the_rule_is_deepspeeds(tmp_path: Path) -> None:
    environ = children.untraced(children.without("ACCEL_", "DS_"))
    ended = children.run_python(["-c", CHILD.format(cases=CASES)], environ, cwd=tmp_path)
    [choose] = [framework.choose for framework in FRAMEWORKS if framework.name == "DeepSpeed"]
    assert len(ended.answers) == len(CASES)
    for (available, importable, failing, variables), (device, error) in zip(
        CASES, ended.answers, strict=True
    ):
        here = Here(
            available=frozenset(available),
            importable=frozenset(importable),
            failing=dict.fromkeys(failing, "RuntimeError: it is broken"),
            environ=variables,
        )
        answer = choose(here)
        assert (answer.device, bool(answer.fails)) == (device, bool(error)), (here, error)
