"""Training with Lightning and Accelerate, on the CPU and on the simulated `acme`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from accel_tests.children import UNTRACED

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from accel_tests.on_simulated import Run, run_on  # noqa: E402 - found by the line above

from accel_simulated import VENDORS, CannotBuildError, build  # noqa: E402

#: A plugin as a vendor would publish it: nobody's device, under nobody's name.
PLUGIN = """
from accel_core import Backend, InTorch, hookimpl

@hookimpl
def accel_backends():
    return [Backend(name="acme", priority=950, device_type="acme", vendor_import="torch_acme",
                    in_torch=InTorch(private_use1=True), communication_backend="accl",
                    accelerator="accel_core.accelerators.torch_device:TorchAccelerator")]
"""
#: torchrun with two ranks on this host.
TORCHRUN = """
import runpy, sys
sys.argv[1:1] = ["--standalone", "--nproc-per-node", "2"]
runpy.run_module("torch.distributed.run", run_name="__main__")
"""


@pytest.fixture(autouse=True)
def environment_as_it_was() -> Iterator[None]:
    """Lightning leaves a rank's variables behind in its process, even where a training is refused."""
    with patch.dict(os.environ):
        yield


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for `sys.path` with the distribution `accel-acme`."""
    folder = tmp_path_factory.mktemp("plugin")
    metadata = folder / "accel_acme-1.0.dist-info"
    metadata.mkdir()
    (folder / "accel_acme.py").write_text(PLUGIN)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: accel-acme\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[accel.backends]\nacme = accel_acme\n")
    return folder


@pytest.fixture(scope="session")
def on_acme(plugin: Path) -> Callable[..., Run]:
    """`run_on("acme", ...)` with the plugin; skips, with the reason, where no device can be built."""

    def start(script: Path | str, *arguments: Any, **options: Any) -> Run:
        try:
            build(VENDORS["acme"].kind)
        except CannotBuildError as error:
            pytest.skip(str(error))
        # Dropout draws from the host's generator, as on the CPU: otherwise the masks would differ.
        environ = {"DS_ACCELERATOR": "acme", "OMP_NUM_THREADS": "1", "ACCEL_SIMULATE_RANDOM": "host"}
        environ |= options.pop("environ", {})
        if environ["DS_ACCELERATOR"] == "cpu":
            # Else torch loads acme by itself, and sends its barriers there, where gloo has nothing to say.
            environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        return run_on(
            "acme", script, *arguments, environ=environ, path=[plugin, HERE], timeout=300, **options
        )

    return start


@pytest.fixture(scope="session")
def ranks(
    on_acme: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., list[dict[str, Any]]]:
    """`ranks("script.py", torchrun=True, **options)`: what each rank of a script says, in order."""

    def ranks(
        script: str, *, torchrun: bool = False, environ: dict[str, str] | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        out = tmp_path_factory.mktemp("answers")
        told = json.dumps({"out": str(out), **options})
        # A framework's own training passes no line of ours that the training on ours does not pass too.
        variables = {**(environ or {}), **(UNTRACED if options.get("own") else {})}
        start = [TORCHRUN, HERE / script] if torchrun else [HERE / script]
        on_acme(*start, told, environ=variables)
        return [json.loads(file.read_text()) for file in sorted(out.iterdir())]

    return ranks
