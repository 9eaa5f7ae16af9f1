"""The plugins of this repository, what they declare and what they drive."""

import importlib
import sys
from pathlib import Path

from accel_tests import surfaces

from accel_core.plugins import declared_backends, hooks_of

ROOT = Path(__file__).parents[3]
#: Those that are written and declare a backend, which accel-simulated does not. Each must have a surface.
PLUGINS = sorted(
    path.parent
    for path in ROOT.glob("plugins/accel_*/pyproject.toml")
    if '"accel.backends"' in path.read_text(encoding="utf-8")
)


def declared(plugin):
    """The plugin's declarations; its module is inert, so this process may import it."""
    return declared_backends(hooks_of(import_plugin(plugin)))


def import_plugin(plugin):
    """The plugin's module, from its folder where it is not installed."""
    source = str(plugin / "src")
    if source not in sys.path:
        sys.path.append(source)
    return importlib.import_module(plugin.name)


def everything(plugin):
    """What the plugin's backends drive, with the other vendors' beside it, and the device type."""
    backends = declared(plugin)
    own = [
        found
        for backend in backends
        if (found := surfaces.for_backend(backend)) is not None
    ]
    assert own, f"{plugin.name} has no surface: add one to {surfaces.FOLDER}"
    others = [
        surfaces.load(name)
        for name in surfaces.files()
        if not surfaces.load(name).usage_only
    ]
    whole = own[0]
    for other in [*own[1:], *others]:
        whole |= other
    return whole, backends[0].device_type
