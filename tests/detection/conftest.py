import sys

import pytest
from accel_tests.acme import ACME
from accel_tests.asking import verdict_on
from accel_tests.computers import Computer

from accel_core import torch_import
from accel_core.checks import Context, run_checks, with_evidence
from accel_core.settings import Settings


class MachineWithTorch(Computer):
    """A machine with a torch, which must not be imported."""

    def torch(self, version, **builds):
        kinds = "".join(
            f"{name} = {builds.get(name)!r}\n" for name in ("cuda", "hip", "xpu")
        )
        self.write("/site/torch/__init__.py", "raise SystemExit('torch was imported')")
        self.write("/site/torch/version.py", f"__version__ = {version!r}\n{kinds}")

    def examine(self, backend=ACME, *, pinned=False):
        """What rules a backend out, and what speaks against its device alone."""
        verdict = with_evidence(verdict_on(backend), self.path)
        return run_checks(verdict, Context(Settings(), pinned, self.path))


@pytest.fixture
def machine(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr("accel_core.hardware.on_linux", lambda: True)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return MachineWithTorch(tmp_path)


@pytest.fixture
def autoload_world(torch_world, monkeypatch):
    """With torch's autoload on, as users have it, in a process that has not imported torch."""
    monkeypatch.delenv("TORCH_DEVICE_BACKEND_AUTOLOAD", raising=False)
    monkeypatch.setattr(torch_import, "imported_by_us", False)
    return torch_world
