"""For the tests of plugins: a vendor's package as it may be found on a machine."""

import sys
from pathlib import Path

from accel_tests import children, layouts

REPOSITORY = Path(__file__).parents[3]


_PROBE = """
import json, os, sys
from accel_core.hardware import bus
bus.device_nodes = lambda patterns, root="/": tuple({nodes!r})
bus.pci_devices = lambda root="/": ()
from accel_core.probe import Prober
from accel_core.select import discover
from accel_core.settings import Settings
import torch
{before}
mine = [c for c in discover() if c.name == {name!r} and c.distribution == {distribution!r}]
verdict = Prober(Settings()).probe(mine[{rank}], tuple(mine), pinned={pinned!r}).to_dict()
print(json.dumps({{**verdict, "vendor_imported": {package!r} in sys.modules}}))
"""


class Machine:
    """A machine with torch (simulated), the plugin, and what a test puts on it; probed in a child process."""

    def __init__(self, root, plugin, vendor, name=""):
        self.site = root / "site"
        self.site.mkdir()
        self.plugin, self.vendor, self.name = (
            plugin,
            vendor,
            name or plugin.removeprefix("accel_"),
        )
        groups = {layouts.GROUP: {self.name: f"accel_{self.name}"}}
        layouts.dist_info(self.site, plugin.replace("_", "-"), "0.1.0", groups)
        self.distribution("torch", "2.9.0")

    def distribution(self, name, version):
        """Metadata of an installed distribution, in the place of what is there of that name."""
        for old in self.site.glob(f"{name.replace('-', '_')}-*.dist-info"):
            old.rename(self.site / f"{old.name}.old")
        layouts.dist_info(self.site, name, version)

    def package(self, source):
        """The vendor's package, whose import runs `source`."""
        layouts._write(self.site, {f"{self.vendor}/__init__.py": source})

    def probe(self, *nodes, before="", pinned=False, rank=0, variables=None):
        """The verdict on the plugin's backend of that rank, on a machine with these device nodes."""
        code = _PROBE.format(
            nodes=nodes, before=before, name=self.name, pinned=pinned, rank=rank, package=self.vendor,
            distribution=self.plugin.replace("_", "-"),
        )  # fmt: skip
        source = REPOSITORY / "plugins" / self.plugin / "src"
        path = [self.site, children.SIMULATED, source, *sys.path]
        return children.run(
            code, path, variables, bare=False, strict=False, traced=False
        ).answer
