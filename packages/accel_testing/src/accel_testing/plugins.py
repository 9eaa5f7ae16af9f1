"""The plugin for what a test installs: it has hooks like any plugin, and faults if requested."""

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
    "forget",
    "hooks",
    "keep",
    "loaded",
    "source",
    "vendor_source",
]


@dataclass(frozen=True)
class Installed:
    """Things that a test installs: a fake, a backend with or without its accelerator, or a plugin."""

    backends: tuple[Backend, ...]
    fake: Fake | None = None
    #: A class, or an object, that is the accelerator of the one backend.
    accelerator: object = None
    #: A module or an object of hooks, which stands for itself.
    plugin: object = None


#: In this process, and in those that are forked from it, by a mark that no other process gives.
_kept: dict[str, Installed] = {}


def keep(installed: Installed) -> str:
    """Keep the object while it is installed; return a key with which to remove it."""
    mark = secrets.token_hex(8)
    _kept[mark] = installed
    return mark


def forget(mark: str) -> None:
    """Remove the object with that key."""
    del _kept[mark]


def source(mark: str) -> str:
    """Return the source of the generated plugin module that the entry point names.

    In this process and its forks, the module uses the object that the test installed. In another process it
    uses a pickle of it, or raises an error if it could not be pickled.
    """
    try:
        # An accelerator's pickle is its name, by which another process would look for this very plugin.
        if isinstance(_kept[mark].accelerator, Accelerator):
            raise TypeError(
                "an accelerator is an object of its process; give its class"
            )
        written, why = base64.b64encode(pickle.dumps(_kept[mark])).decode(), ""
    except Exception as error:  # whatever the objects that it holds raise
        written, why = "", f"{type(error).__name__}: {error}"
    return (
        '"""Written by accel_testing, for as long as a test runs."""\n\n'
        "from accel_testing.plugins import hooks, loaded\n\n"
        f"plugin = loaded({mark!r}, {written!r}, {why!r})\n"
        "globals().update(hooks(plugin))\n"
    )


def vendor_source(module: str, version: str) -> str:
    """Return the source of the package that replaces the vendor's."""
    return f"import {module}\n\n__version__ = {version!r}\n{module}.plugin.meet('vendor_import')\n"


def loaded(mark: str, written: str, why: str) -> object:
    """Return the installed plugin; the generated module calls this when it is imported.

    In another process the plugin is unpickled from `written`. Raises `BackendUnavailableError` if that fails,
    or, with the reason `why`, if it could not be pickled. A fault at `"import"` raises its own error.
    """
    installed = _kept.get(mark)
    if installed is None:
        where = "was installed by a test of another process"
        if not written:
            raise BackendUnavailableError(
                f"this plugin {where}, and does not get into this one: {why}",
                hint="make of it a class or a module that can be imported, outside of functions",
            )
        try:
            installed = pickle.loads(base64.b64decode(written))
        except Exception as error:
            raise BackendUnavailableError(
                f"this plugin {where}, and cannot be read in this one: {type(error).__name__}: {error}",
                hint="put the folder of that module on the child's path: run(..., path=[folder])",
            ) from error
    return installed.plugin if installed.plugin is not None else FakePlugin(installed)


def hooks(plugin: object) -> dict[str, object]:
    """Return the plugin's hooks by name, for the generated module: only a module can be registered."""
    found = {
        name: getattr(plugin, name, None) for name in dir(plugin) if name[:2] != "__"
    }
    return {
        name: hook for name, hook in found.items() if hasattr(hook, f"{PROJECT}_impl")
    }


class FakePlugin:
    """The hooks of a backend that a test installs."""

    def __init__(self, installed: Installed) -> None:
        self._installed = installed
        self._faults = Faults(installed.fake.faults if installed.fake else ())
        self.meet("import")

    def meet(self, at: str) -> None:
        """Make the fault happen that is due at this place."""
        self._faults.meet(at)

    def _answer(self, hook: str, answer: Any) -> Any:
        lie = self._faults.meet(hook)
        return answer if lie is None else lie.returns

    @hookimpl
    def accel_backends(self) -> Sequence[Backend]:
        """Return the declarations."""
        answer: Sequence[Backend] = self._answer(
            "accel_backends", self._installed.backends
        )
        return answer

    @hookimpl
    def accel_probe(self) -> ProbeResult | None:
        """Return `None`: the default probe is used."""
        answer: ProbeResult | None = self._answer("accel_probe", None)
        return answer

    @hookimpl
    def accel_create(self, backend: Backend) -> object:
        """Return the fake, or the accelerator that was given."""
        lie = self._faults.meet("accel_create")
        if lie is not None:
            return lie.returns
        if self._installed.fake is not None:
            from accel_testing.accelerator import (
                FakeAccelerator,
            )  # here, as most are only read

            return FakeAccelerator(backend, self._installed.fake.devices, self._faults)
        given = self._installed.accelerator
        return (
            given(backend)
            if isinstance(given, type) and issubclass(given, Accelerator)
            else given
        )

    @hookimpl
    def accel_explain(self) -> str | None:
        """Return `None`: it explains no errors."""
        answer: str | None = self._answer("accel_explain", None)
        return answer

    @hookimpl
    def accel_op_builders(self) -> object:
        """Return no operators of its own."""
        return self._answer("accel_op_builders", None)

    @hookimpl
    def accel_checks(self) -> Sequence[Check] | None:
        """Return no checks of its own."""
        answer: Sequence[Check] | None = self._answer("accel_checks", None)
        return answer
