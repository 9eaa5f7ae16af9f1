"""Adapt an accelerator to DeepSpeed's launcher. Training processes use the accelerator itself.

The launcher uses the first visible-devices variable without checking that one exists. It reads the variable's
value as integers, and prints every visible-devices variable after setting it. It forwards only variables with
the prefixes that the accelerator names. Three members of accel_core's accelerators return other values than
the launcher needs, so this module overrides them.
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

#: The visible-devices variable for the launcher, which needs one, if the backend has no variable that the
#: launcher can read. Its value has no effect. DeepSpeed itself uses CUDA_VISIBLE_DEVICES in this case, which
#: hides other vendors' devices.
PLACEHOLDER = "DS_VISIBLE_DEVICES"
#: Matches an empty value, or integers with commas, such as `0, 2,3`.
_INTEGERS = re.compile(r"\s*(\d+\s*(,\s*\d+\s*)*)?")


def launcher_view(accelerator: Accelerator) -> Accelerator:
    """Return a view of `accelerator` with the members that DeepSpeed's launcher needs.

    The view shares the accelerator's state.
    """
    if isinstance(accelerator, _LauncherMembers):
        return accelerator
    accelerator_class = type(accelerator)
    view_class: Any = type(
        accelerator_class.__name__,
        (_LauncherMembers, accelerator_class),
        {"__module__": accelerator_class.__module__},
    )
    view: Accelerator = object.__new__(view_class)
    # From now on, both objects have the same attributes.
    view.__dict__ = accelerator.__dict__
    return view


class _LauncherMembers:
    """A mixin for the accelerator's class, with the members that the launcher calls."""

    backend: Any
    _all_device_ids: Any

    def export_envs(self) -> list[str]:
        """Return the prefixes of the environment variables that DeepSpeed's launcher forwards to other nodes.

        The forwarded variables include those that control accel_core's choice (DS_ACCELERATOR, ACCEL_ALLOW…)
        and the activation of the integration (ACCEL_INTEGRATIONS).
        """
        from accel_train.launch.environment import SEARCH_PATHS, validate_prefixes

        exported = validate_prefixes(self.backend.name, super().export_envs())  # type: ignore[misc]
        # AUTOLOAD keeps another vendor's package out of every process that imports torch.
        return [*exported, *SEARCH_PATHS, "ACCEL_", "DS_ACCELERATOR", AUTOLOAD]

    def visible_devices_envs(self) -> list[str]:
        """Return a list with the one visible-devices variable that DeepSpeed's launcher may read and set.

        This is a placeholder without effect if the launcher cannot use the backend's variable.
        """
        variable = self._visibility_variable()
        if not variable or not self._is_list_of_integers(variable):
            return [PLACEHOLDER]
        if not self._has_known_ids(variable):
            return [PLACEHOLDER]
        return [variable]

    def set_visible_devices_envs(
        self,
        current_env: MutableMapping[str, str],
        local_accelerator_ids: Sequence[int | str],
    ) -> None:
        """Set the variables in `current_env` so that only the devices `local_accelerator_ids` are visible.

        If the user's value of the variable contains UUIDs, the ids are positions in the user's list.
        """
        ids = list(local_accelerator_ids)
        variable = self._visibility_variable()
        if variable:
            ids = self._ids_for_variable(variable, ids)
        if variable and self._has_known_ids(variable):
            current_env[variable] = visible_devices.format_visible_devices(
                self.backend.visibility.grammar, ids
            )
        # The launcher also reads this variable, which may be the placeholder.
        [variable_for_launcher] = self.visible_devices_envs()
        ids_text = ",".join(str(device_id) for device_id in ids)
        current_env.setdefault(variable_for_launcher, ids_text)

    def _ids_for_variable(
        self, variable: str, launcher_ids: list[int | str]
    ) -> list[int | str]:
        """Return the ids that the value of `variable` must have, for the ids that the launcher uses."""
        if not self._is_list_of_integers(variable):
            return self._ids_at_positions(variable, launcher_ids)
        if variable not in os.environ and self._has_known_ids(variable):
            # The launcher counts devices from 0, but the ids in the vendor's variable may differ.
            every_id = self._all_device_ids() or ()
            return [every_id[int(position)] for position in launcher_ids]
        return launcher_ids

    def _has_known_ids(self, variable: str) -> bool:
        """Return whether the devices' ids are known, from the variable or from the vendor."""
        return variable in os.environ or self._all_device_ids() is not None

    def _visibility_variable(self) -> str:
        """Return the visible-devices variable that is set, or otherwise the one that takes precedence.

        Returns an empty string if the backend has no such variable.
        """
        names: list[str] = super().visible_devices_envs()  # type: ignore[misc]
        for name in names:
            if name in os.environ:
                return name
        if names:
            return names[0]
        return ""

    @staticmethod
    def _is_list_of_integers(variable: str) -> bool:
        """Return whether the launcher can read the variable: not set, empty, or integers with commas."""
        return _INTEGERS.fullmatch(os.environ.get(variable, "")) is not None

    def _ids_at_positions(
        self, variable: str, positions: list[int | str]
    ) -> list[int | str]:
        """Return the ids at `positions`, counted from 0, in the variable's list.

        Raises `ValueError` if a position is beyond the end of the list.
        """
        value = os.environ[variable]
        parsed = visible_devices.parse_visible_devices(
            self.backend.visibility.grammar, value
        )
        ids = parsed.ids or ()
        try:
            return [ids[int(position)] for position in positions]
        except IndexError:
            selected = ", ".join(str(position) for position in positions)
            raise ValueError(
                f"{variable}={value!r} lists {len(ids)} devices, but the options of DeepSpeed's launcher "
                f"select the positions {selected}. The value of {variable} contains more than plain indices, "
                "so --include and --num_gpus select positions in the list, counted from 0."
            ) from None
