"""A machine with three plugins of which the second works, for programs that choose there over and over."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from accel_tests import layouts, plugins
from accel_tests.children import SIMULATED

#: Of the three, the one that is right.
RIGHT = "mlu"


@pytest.fixture
def machine(base_path):
    """The three plugins in a folder that every user may read."""
    root = Path(tempfile.mkdtemp(prefix="accel-soak-"))
    root.chmod(0o755)
    yield Machine(root, base_path)
    shutil.rmtree(root, ignore_errors=True)


class Machine:
    """Where the three are installed; `path` is a `sys.path` that shows them beside the simulated torch."""

    def __init__(self, root, base):
        self.root = root
        self.site = root / "site-packages"
        self.home = root / "home"
        self.home.mkdir(mode=0o777)
        self.base = base
        self.path = [str(self.site), *base, str(SIMULATED)]
        device = {"accel_sim_device": plugins.ACCELERATOR.format(count="return 2")}
        for name, priority, extra in (("npu", 700, plugins.NO_DEVICE), (RIGHT, 300, ""), ("sdaa", 200, "")):
            source = plugins.declaring(plugins.arguments(name, priority)) + extra
            module = f"accel_{name}"
            groups = {layouts.GROUP: {name: module}}
            layouts.dist_info(self.site, f"accel-{name}", "1.0", groups, {module: source, **device})

    def left(self):
        """Files that were left in the user's folders."""
        return [os.fspath(path.relative_to(self.root)) for path in self.home.rglob("*") if path.is_file()]
