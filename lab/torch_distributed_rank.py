"""Run tests of torch's `DistributedTest` as one rank of a job, which `lab/torch_distributed.py` starts.

    python lab/torch_distributed_rank.py DEVICE_TYPE BACKEND ROLE

The tests are written for CUDA, with branches for the backends nccl and gloo. `DEVICE_TYPE` takes the place of
cuda in their source, and the communication backend `BACKEND` that of `ROLE`, which is nccl or gloo.

The program writes a line with the tests' names, as JSON. Then it reads lines, each with a test's name and a
path for the store, runs the test, and writes a line: `passed`, `skipped` or `failed`, and the reason. torch
starts new processes for each test; here the processes stay, because a start takes longer than most tests.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import sys
import traceback
import unittest
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.testing._internal.common_utils import set_rng_seed

import accel_core
from accel_train.staged import register

HELPERS = "torch.testing._internal.common_distributed"
TESTS = "torch.testing._internal.distributed.distributed_test"
#: What torch's file imports for CUDA alone, and what does the same for each device type.
AMP_OF_CUDA = "from torch.cuda.amp import autocast, GradScaler\n"
AMP = """from functools import partial
autocast = partial(torch.autocast, {device_type!r})
GradScaler = partial(torch.amp.GradScaler, {device_type!r})
"""
#: Seconds that a group waits, as in torch's file.
TIMEOUT = 60


def main(device_type: str, backend: str, role: str) -> None:
    """Run the tests whose names arrive on stdin."""
    # The tests print: their lines go to stderr.
    results = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    register(accel_core.get_accelerator())
    helpers = _load(HELPERS, device_type, backend, role)
    helpers.TEST_CUDA = True
    if backend != "nccl":
        # Whether torch was built with NCCL does not matter.
        helpers.requires_nccl_version = lambda *_: lambda test: test
    module = _load(TESTS, device_type, backend, role)
    # Profiler events with the backend's name, such as `nccl:all_reduce`, come from torch's C++ groups.
    for group in ("", "CUDA_", "SEND_RECV_"):
        with contextlib.suppress(ValueError):
            vars(module)[f"{group}PROFILING_SUPPORTED_BACKENDS"].remove(backend)

    class Tests(module.TestDistBackend, module.DistributedTest._DistTestBase):  # type: ignore[misc,name-defined]
        """The tests, for the backend that the variable BACKEND names."""

    names = [name for name in dir(Tests) if name.startswith("test_")]
    print(json.dumps(names), file=results)
    for line in sys.stdin:
        name, store = line.split()
        print(json.dumps(_run(module, Tests(name), name, store)), file=results)


def _load(name: str, device_type: str, backend: str, role: str) -> Any:
    """Return a module of torch's, made of its source with the words replaced."""
    spec: Any = importlib.util.find_spec(name)
    source = spec.loader.get_source(name)
    if device_type != "cuda":
        source = re.sub(r"^import torch\.cuda.*\n", "", source, flags=re.MULTILINE)
        source = source.replace(AMP_OF_CUDA, AMP.format(device_type=device_type))
        source = re.sub(r"\bcuda\b", device_type, source)
    if backend != role:
        source = re.sub(rf"[\"']{role}[\"']", f'"{backend}"', source)
        attribute = rf"\bBackend\.{role.upper()}\b"
        source = re.sub(attribute, f"Backend.{backend.upper()}", source)
        source = source.replace(f"dist.is_{role}_available()", "True")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # DistributedDataParallel reads annotations: this file's `from __future__` must not hold for them.
    exec(compile(source, spec.origin, "exec", dont_inherit=True), vars(module))
    return module


def _run(module: Any, test: Any, name: str, store: str) -> tuple[str, str]:
    """Run a test in a new process group; return what came of it, and the reason."""
    method = getattr(test, name)
    if getattr(method, "__unittest_skip__", False):  # what unittest's runner looks for
        return "skipped", method.__unittest_skip_why__
    environ = dict(os.environ)
    test.rank = int(os.environ["RANK"])
    test.file_name = store
    test.skip_return_code_checks = []
    try:
        dist.init_process_group(
            os.environ["BACKEND"],
            init_method=f"file://{store}",
            rank=test.rank,
            world_size=int(os.environ["WORLD_SIZE"]),
            timeout=timedelta(seconds=module.CUSTOM_PG_TIMEOUT.get(name, TIMEOUT)),
        )
        test._barrier()
        set_rng_seed()
        method()
        test._barrier()
    except unittest.SkipTest as skip:
        return "skipped", str(skip)
    except SystemExit as end:
        return "skipped", _reason_of_status(end.code)
    except Exception as error:
        traceback.print_exc()
        text = str(error).partition("\n\nTo execute this test")[0]
        return "failed", f"{type(error).__name__}: {text}"
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        # Some tests set variables, torch's debug level too, which end with a process of their own.
        os.environ.clear()
        os.environ.update(environ)
        dist.set_debug_level_from_env()
    return "passed", ""


def _reason_of_status(status: Any) -> str:
    """Return why a test ended its process with that status."""
    for skip in sys.modules[HELPERS].TEST_SKIPS.values():
        if skip.exit_code == status:
            return skip.message
    return f"exit status {status}"


if __name__ == "__main__":
    main(*sys.argv[1:])
