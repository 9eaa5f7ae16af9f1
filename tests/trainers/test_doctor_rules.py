"""What the doctor says that Accelerate, Transformers and Lightning would choose is what they choose.

Their own functions run in one process, over torch and vendors' modules that answer as each case says.
"""

from __future__ import annotations

from pathlib import Path

from accel_testing import children

from accel_core.doctor.frameworks import FRAMEWORKS, Here

#: Devices that are usable, vendors' modules that import, those that fail, and variables.
CASES: list[tuple[list[str], list[str], list[str], dict[str, str]]] = [
    ([], [], [], {}),
    (["cuda"], [], [], {}),
    (["xpu"], [], [], {}),
    (["cuda", "xpu"], [], [], {}),
    (["mps"], [], [], {}),
    (["mps"], [], [], {"DISABLE_MPS": "1"}),
    (["npu"], ["torch_npu"], [], {}),
    ([], ["torch_npu"], [], {}),
    (["cuda", "npu"], ["torch_npu"], [], {}),
    ([], [], ["torch_npu"], {}),
    (["cuda"], [], ["torch_mlu"], {}),
    (["mlu", "cuda"], ["torch_mlu"], [], {}),
    (["sdaa"], ["torch_sdaa"], [], {}),
    (["hpu"], ["habana_frameworks.torch"], [], {}),
    (["cuda"], [], [], {"ACCELERATE_USE_CPU": "yes"}),
    (["cuda"], [], [], {"ACCELERATE_TORCH_DEVICE": "cpu"}),
    ([], [], [], {"ACCELERATE_TORCH_DEVICE": "meta"}),
]

CHILD = """
import contextlib, importlib.machinery, io, json, os, platform, sys, types
cases = {cases!r}
import torch, accelerate, accelerate.state, accelerate.utils.imports
import transformers.training_args, transformers.utils.import_utils
from lightning.fabric.accelerators import CUDAAccelerator, MPSAccelerator, XLAAccelerator
from lightning.fabric.utilities.device_parser import _select_auto_accelerator

class Failing:
    def find_spec(self, name, path=None, target=None):
        if name in failing:
            return importlib.machinery.ModuleSpec(name, self)
    def create_module(self, spec): ...
    def exec_module(self, module):
        raise RuntimeError("it is broken")

failing = []
sys.meta_path.insert(0, Failing())
platform.processor = lambda: "arm"
accelerate.state.check_cuda_p2p_ib_support = lambda: True

class Device:  # torch has one name beside its own at a time
    def __new__(cls, name, *rest):
        try:
            return real_device(name, *rest)
        except RuntimeError:
            return types.SimpleNamespace(type=name.partition(":")[0])

real_device = torch.device
names = ("cuda", "xpu", "mps", "npu", "mlu", "sdaa", "hpu")
own = {{name: getattr(torch, name, None) for name in names}}

def asked(function):
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            return [str(function()), ""]
        except Exception as error:
            return ["", str(error)]

def of_trainer():
    arguments = transformers.training_args.TrainingArguments
    self = types.SimpleNamespace(
        accelerator_config=None, use_cpu=False, ddp_backend=None, ddp_timeout=60, deepspeed=None,
        parallel_mode=None,
    )
    devices = arguments.__dict__["_setup_devices"]
    return (getattr(devices, "func", None) or devices.fget)(self).type

def of_accelerate():
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    return accelerate.Accelerator().device.type

for available, importable, broken, environ in cases:
    asking = [CUDAAccelerator, MPSAccelerator, XLAAccelerator, accelerate.utils.imports]
    for owner in [*asking, transformers.utils.import_utils]:
        for name in dir(owner):
            getattr(getattr(owner, name), "cache_clear", lambda: None)()
    failing[:] = broken
    for name in importable:
        for part in (name.partition(".")[0], name):
            sys.modules[part] = types.ModuleType(part)
            sys.modules[part].__spec__ = importlib.machinery.ModuleSpec(part, None)
            sys.modules[part].__version__ = "9"
            sys.modules[part].__path__ = []
    for name in names:
        there = name in available
        if own[name] is None:
            module = types.SimpleNamespace(
                is_available=lambda there=there: there, set_device=lambda device: None,
                device_count=lambda: 1, current_device=lambda: 0,
            )
            setattr(torch, name, module) if f"torch_{{name}}" in importable or name == "hpu" else None
        else:
            own[name].is_available = lambda there=there: there
            own[name].device_count = lambda there=there: int(there)
            own[name].set_device = lambda device: None
    torch.backends.mps.is_available = torch.backends.mps.is_built = lambda: "mps" in available
    torch.device = Device
    os.environ.update(environ)
    print("ANSWER", json.dumps([asked(of_accelerate), asked(of_trainer), asked(_select_auto_accelerator)]))
    torch.device = real_device
    for name in environ:
        del os.environ[name]
    for name in importable:
        for part in (name.partition(".")[0], name):
            sys.modules.pop(part, None)
    for name in names:
        if own[name] is None and hasattr(torch, name):
            delattr(torch, name)
"""


def test_the_rules_are_theirs(tmp_path: Path) -> None:
    environ = children.untraced(children.without("ACCEL", "DS_", "LOCAL_RANK", "RANK", "WORLD_SIZE"))
    ended = children.run_python(["-c", CHILD.format(cases=CASES)], environ, cwd=tmp_path)
    rules = {framework.name: framework.choose for framework in FRAMEWORKS}
    assert len(ended.answers) == len(CASES)
    for (available, importable, failing, variables), theirs in zip(CASES, ended.answers, strict=True):
        here = Here(
            available=frozenset(available),
            importable=frozenset(importable),
            failing=dict.fromkeys(failing, "RuntimeError: it is broken"),
            environ=variables,
        )
        for name, (device, error) in zip(
            ("Accelerate", "Transformers' Trainer", "Lightning"), theirs, strict=True
        ):
            answer = rules[name](here)
            assert (answer.device, bool(answer.fails)) == (device, bool(error)), (name, here, error)
