"""The plugin of a backend that a test installs. It has hooks like any other plugin, and triggers faults."""

from __future__ import annotations

import base64
import pickle
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from accel_core import Accelerator, Backend, Check, ProbeResult, hookimpl
from accel_core.backend import PROJECT
from accel_core.errors import BackendUnavailableError
from accel_testing.fakes import Fake
from accel_testing.faults import Faults

__all__ = [
    "FakePlugin",
    "Installed",
    "collect_hooks",
    "load_plugin",
    "plugin_source",
    "register",
    "unregister",
    "vendor_package_source",
]


@dataclass(frozen=True)
class Installed:
    """A record of what `installed` has installed: a fake, a `Backend` or a plugin."""

    backends: tuple[Backend, ...]
    fake: Fake | None = None
    #: The accelerator class or object that was passed for a single `Backend`, or `None`.
    accelerator: object = None
    #: A module or object with hooks, which is used directly.
    plugin: object = None


#: The records of what is installed in this process and its forks, by a random key that no other process uses.
_installed_by_key: dict[str, Installed] = {}


def register(installed: Installed) -> str:
    """Register a record of what a test installs, and return the key to pass to `unregister`."""
    key = secrets.token_hex(8)
    _installed_by_key[key] = installed
    return key


def unregister(key: str) -> None:
    """Remove the record that was registered under `key`."""
    del _installed_by_key[key]


def plugin_source(key: str) -> str:
    """Return the source of a generated plugin module, to which the entry point of the test's plugin refers.

    `key` is a key that `register` returned. In this process and its forks, the module uses the registered
    record. In any other process, the module unpickles a copy of the record, or raises an error if the record
    could not be pickled.
    """
    installed = _installed_by_key[key]
    try:
        # An accelerator is pickled as its name, and unpickling the name would search for this plugin.
        if isinstance(installed.accelerator, Accelerator):
            raise TypeError(
                "an accelerator cannot be passed to another process; pass its class to installed()"
            )
        pickled = base64.b64encode(pickle.dumps(installed)).decode()
        pickle_error = ""
    except Exception as error:  # the pickled objects may raise any error
        pickled = ""
        pickle_error = f"{type(error).__name__}: {error}"
    return (
        '"""A plugin that accel_testing generated for the duration of a test."""\n\n'
        "from accel_testing.plugins import collect_hooks, load_plugin\n\n"
        f"plugin = load_plugin({key!r}, {pickled!r}, {pickle_error!r})\n"
        "globals().update(collect_hooks(plugin))\n"
    )


def vendor_package_source(plugin_module: str, version: str) -> str:
    """Return the source of a generated package that stands in for the vendor's package in a test.

    Importing that package triggers the `"vendor_import"` faults of the plugin in `plugin_module`.
    """
    return (
        f"import {plugin_module}\n\n"
        f"__version__ = {version!r}\n"
        f"{plugin_module}.plugin.trigger('vendor_import')\n"
    )


def load_plugin(key: str, pickled: str, pickle_error: str) -> object:
    """Return the plugin that a test has installed. The generated plugin module calls this function.

    In the test's own process, the plugin is created from the record registered under `key`. In any other
    process, it is created from `pickled`, a pickle of that record.

    Raises `BackendUnavailableError` in another process if `pickled` cannot be unpickled or is empty. If it is
    empty, the message contains `pickle_error` as the reason. A fault at `"import"` raises its own error.
    """
    installed = _installed_by_key.get(key)
    if installed is None:
        origin = "was installed by a test in another process"
        if not pickled:
            raise BackendUnavailableError(
                f"this plugin {origin}, and cannot be passed to this process: {pickle_error}",
                hint="define the plugin outside of functions, in a module that other processes can import",
            )
        try:
            installed = pickle.loads(base64.b64decode(pickled))
        except Exception as error:
            raise BackendUnavailableError(
                f"this plugin {origin}, and cannot be unpickled here: {type(error).__name__}: {error}",
                hint="add the folder of the plugin's module to the child's path: run(..., path=[folder])",
            ) from error
    if installed.plugin is not None:
        return installed.plugin
    return FakePlugin(installed)


def collect_hooks(plugin: object) -> dict[str, object]:
    """Return a plugin's hooks by name. A hook is a function decorated with `hookimpl`."""
    hooks_by_name = {}
    for name in dir(plugin):
        if name.startswith("__"):
            continue
        attribute = getattr(plugin, name, None)
        is_hook = hasattr(attribute, f"{PROJECT}_impl")  # set by `hookimpl`
        if is_hook:
            hooks_by_name[name] = attribute
    return hooks_by_name


class FakePlugin:
    """A plugin for a backend that a test installs, with hooks that trigger the injected faults."""

    def __init__(self, installed: Installed) -> None:
        self._installed = installed
        self._faults = Faults()
        if installed.fake is not None:
            self._faults = Faults(installed.fake.faults)
        self.trigger("import")

    def trigger(self, at: str) -> None:
        """Count a call at the point `at`, such as `"import"`, and trigger the injected fault that is due.

        Nothing is triggered if no fault is due.
        """
        self._faults.trigger(at)

    def _result_or_fault(self, hook: str, result: Any) -> Any:
        """Count a call to the hook, and return `result`, or the wrong value of a fault that is due."""
        fault = self._faults.trigger(hook)
        if fault is not None:
            return fault.returns
        return result

    @hookimpl
    def accel_backends(self) -> Sequence[Backend]:
        """Return the declarations of the backends that the test has installed."""
        result: Sequence[Backend] = self._result_or_fault(
            "accel_backends", self._installed.backends
        )
        return result

    @hookimpl
    def accel_probe(self) -> ProbeResult | None:
        """Return `None`, which makes accel-core use its default probe."""
        result: ProbeResult | None = self._result_or_fault("accel_probe", None)
        return result

    @hookimpl
    def accel_create(self, backend: Backend) -> object:
        """Return the fake accelerator, or the accelerator that was passed to `installed`."""
        fault = self._faults.trigger("accel_create")
        if fault is not None:
            return fault.returns
        if self._installed.fake is not None:
            # The import is here because most plugins are only asked for their declaration.
            from accel_testing.accelerator import FakeAccelerator

            return FakeAccelerator(backend, self._installed.fake.devices, self._faults)
        accelerator = self._installed.accelerator
        if isinstance(accelerator, type) and issubclass(accelerator, Accelerator):
            return accelerator(backend)
        return accelerator

    @hookimpl
    def accel_explain(self) -> str | None:
        """Return `None`, because this plugin does not explain errors."""
        result: str | None = self._result_or_fault("accel_explain", None)
        return result

    @hookimpl
    def accel_op_builders(self) -> object:
        """Return `None`, because this plugin provides no operators."""
        return self._result_or_fault("accel_op_builders", None)

    @hookimpl
    def accel_checks(self) -> Sequence[Check] | None:
        """Return `None`, because this plugin provides no additional checks."""
        result: Sequence[Check] | None = self._result_or_fault("accel_checks", None)
        return result
