"""Keep the settings of optimizers that callers identify by number, like DeepSpeed's C++ operators."""

from __future__ import annotations

import logging
from typing import Generic, TypeVar

from accel_core.errors import OpInputError
from accel_train.ops.arguments import whole_number

__all__ = ["Optimizers"]

T = TypeVar("T")


class Optimizers(Generic[T]):
    """The settings of one operator's optimizers, by the caller's number for each optimizer.

    `create` is the name of the function that creates an optimizer, for messages.
    """

    def __init__(self, op: str, create: str) -> None:
        self._op = op
        self._create = create
        self._settings_of: dict[int, T] = {}

    def create(self, optimizer_id: int, settings: T, should_log: bool) -> int:
        """Keep `settings` for the optimizer `optimizer_id`, and return 0, like the compiled functions.

        Earlier settings of the same number are replaced. `should_log` logs the creation. Raises
        `OpInputError` if `optimizer_id` is not a whole number that fits in 64 bits.
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
        """Return the optimizer's settings. Raises `OpInputError` if the optimizer was not created."""
        try:
            return self._settings_of[optimizer_id]
        except KeyError:
            raise OpInputError(
                f"{self._op}: optimizer {optimizer_id} was not created. "
                f"Call {self._create}({optimizer_id}, …)"
            ) from None

    def destroy(self, optimizer_id: int) -> int:
        """Delete the optimizer's settings, if they exist, and return 0.

        A missing optimizer is not an error, because `__del__` calls this function.
        """
        self._settings_of.pop(optimizer_id, None)
        return 0
