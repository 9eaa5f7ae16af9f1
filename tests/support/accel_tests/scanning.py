"""What accel_core finds on `sys.path`, and what the standard library finds there."""

import sys
from importlib import metadata as reference

from accel_core.packages import entry_points
from accel_tests.layouts import GROUP

#: No distribution is there, and the modules that importlib.metadata imports late are.
STANDARD = [
    p for p in sys.path if p.startswith(sys.base_prefix) and "-packages" not in p
]

ONE = {GROUP: {"npu": "accel_npu"}}


def oracle():
    found = []
    for entry in reference.entry_points(group=GROUP):
        found.append(
            (entry.name, entry.value, entry.dist.metadata["Name"], entry.dist.version)
        )
    return found


def ours():
    return [(e.name, e.value, e.distribution, e.version) for e in entry_points(GROUP)]


def site(tmp_path, name="site"):
    root = tmp_path / name
    root.mkdir(exist_ok=True)
    return root


class Finder:
    """A finder that brings a distribution of its own, as PyInstaller's or an import hook may."""

    def __init__(self, folder):
        self.folder = folder

    def find_spec(self, name, path=None, target=None):
        return None

    def invalidate_caches(self): ...

    def find_distributions(self, context=None):
        return [reference.Distribution.at(self.folder)]
