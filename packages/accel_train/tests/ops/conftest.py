"""Modules and a DeepSpeed on disk, for the tests of who provides an operator."""

import importlib
import sys
import textwrap

import pytest

from accel_train.deepspeed import op_builders


class Disk:
    """A folder on `sys.path` for modules of this test, and for a package as DeepSpeed's is laid out."""

    def __init__(self, folder):
        self.folder = folder

    def module(self, name, source):
        path = self.folder.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
        importlib.invalidate_caches()
        return path

    def deepspeed(self, device_type, **modules):
        """DeepSpeed with builders for a device type: the module's name, and its source."""
        under = "" if device_type == "cuda" else f".{device_type}"
        for package in ("", ".ops", ".ops.op_builder", f".ops.op_builder{under}"):
            self.module(f"deepspeed{package}.__init__", "")
        for name, source in modules.items():
            self.module(f"deepspeed.ops.op_builder{under}.{name}", source)


@pytest.fixture
def disk(tmp_path, monkeypatch):
    before = set(sys.modules)
    for name in [n for n in sys.modules if n.partition(".")[0] == "deepspeed"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    op_builders._parse_builders.cache_clear()
    yield Disk(tmp_path)
    op_builders._parse_builders.cache_clear()
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
