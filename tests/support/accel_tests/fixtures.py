"""A world of its own for each test: its distributions, its torch, its process-wide state."""

import copy
import importlib
import importlib.util
import json
import os
import re
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
from filelock import FileLock

import accel_core
import accel_testing
import accel_tools
import accel_train
from accel_core import current
from accel_core.hardware import vendors
from accel_tests import children, layouts, plugins, variables
from accel_tests.computers import Computer

_PACKAGE = Path(accel_core.__file__).parent
#: What stands beside the core.
_BESIDE = tuple(
    Path(package.__file__).parent
    for package in (accel_train, accel_tools, accel_testing)
)


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(terminalreporter):
    """Without torch, count the tests that need it in one line: hundreds of skips would hide the others."""
    skipped = terminalreporter.stats.get("skipped", [])
    if importlib.util.find_spec("torch") or not skipped:
        return
    need = [
        report for report in skipped if _NEEDS_TORCH.search(str(report.longrepr[2]))
    ]
    terminalreporter.stats["skipped"] = [
        report for report in skipped if report not in need
    ]
    if need:
        terminalreporter.stats["not run without torch"] = need


_NEEDS_TORCH = re.compile(r"\btorch(run)?\b")


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch):
    """What the person who runs the tests has set must not decide what they see."""
    for name in variables.NAMES:
        monkeypatch.delenv(name, raising=False)
    for name in list(os.environ):  # nor what put them there
        if name.startswith(("SLURM_", "KUBERNETES_", "APPTAINER_", "SINGULARITY_")):
            monkeypatch.delenv(name)


def _is_third_party(entry):
    return Path(entry).name in ("site-packages", "dist-packages")


@pytest.fixture(scope="session")
def shared_by_workers(tmp_path_factory, worker_id):
    """`shared_by_workers(name, compute)`: what `compute` gives, as JSON holds it; one worker computes it."""
    own = tmp_path_factory.getbasetemp()
    shared = own if worker_id == "master" else own.parent

    def computed(name, compute):
        kept = shared / f"{name}.json"
        with FileLock(f"{kept}.lock"):
            if not kept.exists():
                kept.write_text(json.dumps(compute()), encoding="utf-8")
        return json.loads(kept.read_text(encoding="utf-8"))

    return computed


@pytest.fixture(scope="session")
def libraries(tmp_path_factory):
    """Two folders of links: everything that is installed but torch and ours, and torch.

    Whoever runs the tests may have plugins installed; a test sees those it made.
    """
    base = tmp_path_factory.mktemp("libraries")
    without, torch = (
        base / "without" / "site-packages",
        base / "torch" / "site-packages",
    )
    without.mkdir(parents=True)
    torch.mkdir(parents=True)
    for entry in filter(_is_third_party, sys.path):
        for item in Path(entry).iterdir() if Path(entry).is_dir() else ():
            low = item.name.lower()
            if low.startswith(("accel", "__editable__", "_accel")) or low.endswith(
                (".pth", ".egg-link")
            ):
                continue
            link = (
                torch
                if low.split("-")[0] in ("torch", "torchgen", "functorch")
                else without
            ) / item.name
            if not link.is_symlink():
                link.symlink_to(item, target_is_directory=item.is_dir())
    for package in (_PACKAGE, *_BESIDE):
        if package.parent.name != "src":
            (without / package.name).symlink_to(package)
    for (
        package
    ) in _BESIDE:  # their commands and operators are announced by what is written there
        metadata = Path(
            str(distribution(package.name.replace("_", "-")).locate_file(""))
        )
        (found,) = metadata.glob(f"{package.name}-*.dist-info")
        (without / found.name).symlink_to(found)
    return without, torch


@pytest.fixture(scope="session")
def bare_sys_path(libraries):
    """`sys.path` with the standard library, ours and what they need: no torch and no plugin."""
    standard = [
        p for p in sys.path if p.startswith(sys.base_prefix) and not _is_third_party(p)
    ]
    ours = [
        str(package.parent)
        for package in (_PACKAGE, *_BESIDE)
        if package.parent.name == "src"
    ]
    return (*ours, *standard, str(libraries[0]))


@pytest.fixture
def set_sys_path(monkeypatch):
    """Make these, and the standard library, the whole of `sys.path`."""
    from accel_tests.scanning import STANDARD

    def set_path(entries):
        monkeypatch.setattr(sys, "path", [*map(str, entries), *STANDARD])
        importlib.invalidate_caches()

    return set_path


@pytest.fixture
def computer(tmp_path):
    """A machine made of folders, with nothing in it."""
    return Computer(tmp_path / "computer")


@pytest.fixture
def no_hardware(monkeypatch):
    """A machine on which no accelerator is seen, whatever the real one has."""
    monkeypatch.setattr(vendors, "known_hardware", lambda *root: ())


#: The state of `accel_core.current` in a process in which nothing has been chosen.
NOTHING_CHOSEN = {
    "_current_without_overrides": None, "_chosen": None, "_selection": None, "_built": {}, "_by_pin": {},
    "_overrides": set(), "_warned": set(),
}  # fmt: skip


@pytest.fixture
def fresh(monkeypatch):
    """A process in which nothing has been chosen."""
    for name, value in copy.deepcopy(NOTHING_CHOSEN).items():
        monkeypatch.setattr(current, name, value)


class World:
    """What is installed, for this process and for its children."""

    def __init__(self, root, base, real_torch, monkeypatch):
        self.real_torch = real_torch
        self.root = root
        self.site = root / "site-packages"
        self.site.mkdir()
        self.base = base
        self.monkeypatch = monkeypatch
        layouts._write(
            self.site,
            {"accel_sim_device.py": plugins.ACCELERATOR.format(count="return 2")},
        )
        self.set_path([self.site])

    def set_path(self, entries):
        self.path = [*map(str, entries), *self.base]
        self.monkeypatch.setattr(sys, "path", list(self.path))
        importlib.invalidate_caches()

    def plugin(
        self,
        name,
        source,
        *,
        distribution="",
        version="1.0",
        value="",
        layout=layouts.dist_info,
    ):
        """Install a plugin whose entry point is `name`, in a distribution `accel-<name>`."""
        distribution = distribution or f"accel-{name}"
        module = distribution.replace("-", "_")
        layout(
            self.site,
            distribution,
            version,
            {layouts.GROUP: {name: value or module}},
            {module: source},
        )
        importlib.invalidate_caches()

    def backend(self, name, priority=500, *, extra="", **fields):
        """Install a plugin that declares one backend, `extra` being more of its source."""
        distribution = str(fields.pop("distribution", ""))
        layout = fields.pop("layout", layouts.dist_info)
        source = plugins.declaring(plugins.arguments(name, priority, **fields)) + extra
        self.plugin(name, source, distribution=distribution, layout=layout)

    def module(self, name, source):
        """Install a plain module, such as a vendor's package."""
        layouts._write(self.site, {f"{name.replace('.', '/')}.py": source})
        importlib.invalidate_caches()

    def distribution(self, name, version, groups=None):
        layouts.dist_info(self.site, name, version, groups)

    def child(self, code, *, torch="simulated", **options):
        """Run `code` in a process that has what is installed here; `torch`: "simulated", "real" or "none"."""
        if torch == "real":
            if not (self.real_torch / "torch").exists():
                pytest.skip("torch is not installed")
            options.setdefault("strict", False)  # torch warns where there is no numpy
        more = {
            "simulated": [children.SIMULATED],
            "real": [self.real_torch],
            "none": [],
        }[torch]
        return children.run(code, [*self.path, *more], **options)


#: Of our own packages, those that are no plugins.
_STAY = (
    *("accel_core", "accel_train", "accel_tools", "accel_testing", "accel_simulated"),
    *("accel_tests", "accel_contracts"),
)


def steps_aside(module):
    """Whether a module is torch's, a vendor's or a plugin's, and so may stand in the way of a test's own."""
    top = module.partition(".")[0]
    vendors = ("torch", "habana_frameworks", "intel_extension_for_")
    return top.startswith((*vendors, "accel_")) and top not in _STAY


def other_modules(root):
    """Take torch's modules, vendors' and plugins', and those below `root`, out of `sys.modules`."""
    found = {name: module for name, module in sys.modules.items() if steps_aside(name)}
    found |= {
        n: m
        for n, m in sys.modules.items()
        if str(getattr(m, "__file__", "")).startswith(str(root))
    }
    for name in found:
        del sys.modules[name]
    return found


@pytest.fixture
def world(tmp_path, bare_sys_path, libraries, monkeypatch, no_hardware, fresh):
    """A machine without torch and without plugins, to install some; this process sees it."""
    # What a test's processes die of is noted in the user's cache, and is no other test's business.
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    aside = other_modules(tmp_path)
    world = World(tmp_path, bare_sys_path, libraries[1], monkeypatch)
    yield world
    other_modules(tmp_path)
    sys.modules.update(aside)


@pytest.fixture
def torch_world(world):
    """The same with the simulated torch installed."""
    world.base = (*world.base, str(children.SIMULATED))
    world.set_path([world.site])
    return world


@pytest.fixture
def simulated_torch(torch_world):
    """The simulated torch, imported."""
    return importlib.import_module("torch")


@pytest.fixture
def several(torch_world):
    """npu has no device; mlu and sdaa work."""
    torch_world.backend("npu", 700, extra=plugins.NO_DEVICE)
    torch_world.backend("mlu", 300)
    torch_world.backend("sdaa", 200)
    return torch_world


@pytest.fixture
def mlu(torch_world):
    """mlu works, and is all there is."""
    torch_world.backend("mlu", 300)
    return torch_world
