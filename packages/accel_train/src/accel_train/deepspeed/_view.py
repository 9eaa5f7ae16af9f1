"""Our accelerator as DeepSpeed's launcher needs it; training processes get the accelerator itself.

The launcher takes the first visible-devices variable without checking that there is one, reads its value as
integers, prints every such variable after setting them, and forwards only variables with the prefixes that
the accelerator names. Four members of our accelerator return other values than it needs; this module
overrides them.
"""

from __future__ import annotations

import os
import re
from collections.abc import MutableMapping, Sequence
from typing import Any

from accel_core import Accelerator
from accel_core.hardware import visible_devices
from accel_core.torch_import import AUTOLOAD

__all__ = ["launcher_view"]

#: Stands for the variable that the launcher insists on, where the backend has none that it could read.
#: Nobody reads it. DeepSpeed itself uses CUDA_VISIBLE_DEVICES here, which hides other vendors' devices.
PLACEHOLDER = "DS_VISIBLE_DEVICES"
_INTEGERS = re.compile(r"\s*(\d+\s*(,\s*\d+\s*)*)?")


def launcher_view(accelerator: Accelerator) -> Accelerator:
    """Return an object with the class and state of `accelerator`, and the launcher's four values."""
    if isinstance(accelerator, _LauncherAnswers):
        return accelerator
    kind = type(accelerator)
    mixed: Any = type(
        kind.__name__, (_LauncherAnswers, kind), {"__module__": kind.__module__}
    )
    view: Accelerator = object.__new__(mixed)
    view.__dict__ = accelerator.__dict__
    return view


class _LauncherAnswers:
    """The members that the launcher calls. Mixed into the accelerator's class."""

    backend: Any
    _every_id: Any

    def export_envs(self) -> list[str]:
        """Also what makes our choice and our activation, on the other nodes too."""
        # Forwarded by prefix: the choice (DS_ACCELERATOR, ACCEL_ALLOW…) and ACCEL_INTEGRATIONS.
        from accel_train.launch.environment import SEARCH_PATHS, exported_by

        mine = exported_by(self.backend.name, super().export_envs())  # type: ignore[misc]
        # The last is what keeps another vendor's package out of every process that imports torch.
        return [*mine, *SEARCH_PATHS, "ACCEL_", "DS_ACCELERATOR", AUTOLOAD]

    def visible_devices_envs(self) -> list[str]:
        """The one variable that the launcher may read and set."""
        variable = self._variable()
        known = variable and self._is_plain(variable) and self._ids_known(variable)
        return [variable if known else PLACEHOLDER]

    def set_visible_devices_envs(
        self,
        current_env: MutableMapping[str, str],
        local_accelerator_ids: Sequence[int | str],
    ) -> None:
        """Make these devices visible. Where the user's value holds UUIDs, they are places in that list."""
        ids = list(local_accelerator_ids)
        variable = self._variable()
        if variable and not self._is_plain(variable):
            ids = self._named_by_user(variable, ids)
        elif variable and variable not in os.environ and self._ids_known(variable):
            every = (
                self._every_id() or ()
            )  # the launcher counts devices; the variable may name otherwise
            ids = [every[int(place)] for place in ids]
        if variable and self._ids_known(variable):
            current_env[variable] = visible_devices.format_visible_devices(
                self.backend.visibility.grammar, ids
            )
        current_env.setdefault(self.visible_devices_envs()[0], ",".join(map(str, ids)))

    def _ids_known(self, variable: str) -> bool:
        return variable in os.environ or self._every_id() is not None

    def _variable(self) -> str:
        """The variable that hides devices from this process, else the one that would win; or none."""
        names: list[str] = super().visible_devices_envs()  # type: ignore[misc]
        return next(
            (name for name in names if name in os.environ), names[0] if names else ""
        )

    @staticmethod
    def _is_plain(variable: str) -> bool:
        """Whether the launcher can read the value: integers and commas, or nothing."""
        return _INTEGERS.fullmatch(os.environ.get(variable, "")) is not None

    def _named_by_user(self, variable: str, places: list[int | str]) -> list[int | str]:
        value = os.environ[variable]
        given = (
            visible_devices.parse_visible_devices(
                self.backend.visibility.grammar, value
            ).ids
            or ()
        )
        try:
            return [given[int(place)] for place in places]
        except IndexError:
            raise ValueError(
                f"{variable}={value!r} names {len(given)} devices, and the launcher was asked for "
                f"{', '.join(map(str, places))}. If {variable} holds no plain indices, --include and "
                "--num_gpus refer to positions in its list, from 0."
            ) from None
