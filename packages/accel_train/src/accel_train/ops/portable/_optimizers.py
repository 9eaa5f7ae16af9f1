"""Keep the settings of optimizers that callers refer to by number, as DeepSpeed's C++ operators do."""

from __future__ import annotations

import logging
from typing import Generic, TypeVar

from accel_core.errors import OpInputError
from accel_train.ops.arguments import whole_number

__all__ = ["Optimizers"]

T = TypeVar("T")


class Optimizers(Generic[T]):
    """The settings of one operator's optimizers, by the number that the caller gave each.

    `create`: the name of the function that creates an optimizer, for messages.
    """

    def __init__(self, op: str, create: str) -> None:
        self._op = op
        self._create = create
        self._settings_of: dict[int, T] = {}

    def create(self, optimizer_id: int, settings: T, should_log: bool) -> int:
        """Keep `settings` under this number, replacing older ones. Returns 0, as the compiled functions do.

        Raises `OpInputError` if the number is not a whole number of 64 bits, as the compiled operator does.
        """
        optimizer_id = whole_number(
            self._op, "optimizer_id", optimizer_id, -(2**63), 64
        )
        self._settings_of[optimizer_id] = settings
        if should_log:
            logging.getLogger("accel_train.ops").info(
                "%s %d: portable, on torch's operators", self._op, optimizer_id
            )
        return 0

    def get(self, optimizer_id: int) -> T:
        """Return the settings of a number. Raises `OpInputError` for a number that was not created."""
        try:
            return self._settings_of[optimizer_id]
        except KeyError:
            raise OpInputError(
                f"{self._op}: optimizer {optimizer_id} was not created. "
                f"Call {self._create}({optimizer_id}, …)"
            ) from None

    def destroy(self, optimizer_id: int) -> int:
        """Delete the number, if it exists: `__del__` calls this, where an error would not help. Returns 0."""
        self._settings_of.pop(optimizer_id, None)
        return 0
