"""Keep the settings of optimizers that callers identify by number, like DeepSpeed's C++ operators."""

from __future__ import annotations

import logging
from typing import Generic, TypeVar

from accel_core.errors import OpInputError
from accel_train.ops.arguments import require_whole_number

__all__ = ["Optimizers"]

T = TypeVar("T")


class Optimizers(Generic[T]):
    """A registry of one operator's optimizers, with the settings of each optimizer under the caller's id.

    `op` is the operator's name, and `create_function` is the name of the function that creates an optimizer.
    Both are used in messages.
    """

    def __init__(self, op: str, create_function: str) -> None:
        self._op = op
        self._create_function = create_function
        self._settings_by_id: dict[int, T] = {}

    def create(self, optimizer_id: int, settings: T, should_log: bool) -> int:
        """Store `settings` for the optimizer with the id `optimizer_id`, and return 0.

        The compiled function returns 0 too. Earlier settings for the same id are replaced. With `should_log`,
        the creation is logged. Raises `OpInputError` if `optimizer_id` is not a whole number that fits in 64
        bits.
        """
        optimizer_id = require_whole_number(
            self._op, "optimizer_id", optimizer_id, -(2**63), 64
        )
        self._settings_by_id[optimizer_id] = settings
        if should_log:
            logging.getLogger("accel_train.ops").info(
                "%s: created optimizer %d, which uses torch's operators",
                self._op,
                optimizer_id,
            )
        return 0

    def get_settings(self, optimizer_id: int) -> T:
        """Return an optimizer's settings. Raises `OpInputError` if the optimizer has not been created."""
        try:
            return self._settings_by_id[optimizer_id]
        except KeyError:
            raise OpInputError(
                f"{self._op}: optimizer {optimizer_id} was not created. "
                f"Next step: call {self._create_function}({optimizer_id}, …)"
            ) from None

    def destroy(self, optimizer_id: int) -> int:
        """Delete an optimizer's settings, if they exist, and return 0.

        A missing optimizer is not an error, because an optimizer's `__del__` calls this method.
        """
        self._settings_by_id.pop(optimizer_id, None)
        return 0
