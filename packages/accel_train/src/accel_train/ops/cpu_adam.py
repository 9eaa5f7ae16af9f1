"""Adam and AdamW on the CPU, compiled: vectorised for the processor, and run on torch's threads."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from accel_core.errors import OpInputError
from accel_core.torch_import import import_torch
from accel_train.ops import arguments, compiler
from accel_train.ops.builder import OpBuilder

__all__ = ["CPUAdam", "CPUAdamBuilder"]

_NAMES = ("grads", "params", "exp_avg", "exp_avg_sq")


class CPUAdam:
    """The functions of the operator `cpu_adam`, except ZenFlow's, on the compiled module.

    Parameters and gradients are float32, bfloat16 or float16. The two states are float32 or have the
    parameters' type. Computation is in float32. There a step equals that of DeepSpeed's own operator to the
    last bit, for any number of threads.
    """

    def __init__(self, module: ModuleType) -> None:
        torch = import_torch()
        self._module: Any = module
        self._formats = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
        #: The instructions in use: `"AVX512"`, `"AVX2"`, `"NEON"` or `"baseline"`.
        self.capability: str = module.capability

    def __getattr__(self, name: str) -> Any:
        raise arguments.zenflow_is_missing("cpu_adam", name)

    def create_adam(
        self,
        optimizer_id: int,
        alpha: float = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        adamw_mode: bool = True,
        should_log: bool = False,
    ) -> int:
        """Create optimizer `optimizer_id`: AdamW if `adamw_mode`, else Adam. Returns 0.

        The other values are only logged; each update passes its own.
        """
        self._module.create(_id(optimizer_id), beta1, beta2, adamw_mode)
        if should_log:
            sys.stderr.write(
                f"accel-core: CPU Adam {optimizer_id} ({self.capability}): lr={alpha}, "
                f"betas=({beta1}, {beta2}), eps={eps}, weight_decay={weight_decay}, "
                f"adamw_mode={bool(adamw_mode)}\n"
            )
        return 0

    def adam_update(
        self,
        optimizer_id: int,
        step: int,
        lr: float,
        beta1: float,
        beta2: float,
        epsilon: float,
        weight_decay: float,
        bias_correction: bool,
        params: Any,
        grads: Any,
        exp_avg: Any,
        exp_avg_sq: Any,
    ) -> int:
        """Do one step on one parameter, in place; `step` starts at 1. Returns 0.

        Raises `OpInputError`, before anything is changed, for an optimizer that was not created, for tensors
        that do not match, and for numbers out of range: 0 <= beta < 1, weight_decay >= 0, step >= 1.
        """
        numbers = (lr, beta1, beta2, epsilon, weight_decay, bias_correction)
        tensors = (params, grads, exp_avg, exp_avg_sq)
        return self._call(self._module.update, optimizer_id, step, numbers, tensors)

    def adam_rollback(
        self,
        optimizer_id: int,
        step: int,
        lr: float,
        beta1: float,
        beta2: float,
        epsilon: float,
        weight_decay: float,
        bias_correction: bool,
        params: Any,
        grads: Any,
        exp_avg: Any,
        exp_avg_sq: Any,
    ) -> int:
        """Undo `adam_update` with the same arguments, up to rounding; float32 only. Returns 0.

        Raises `OpInputError` as `adam_update` does. Raises it also for other types, whose rounding lost the
        old values, and for a rate of 0 or `lr * weight_decay = 1`, after which the old values cannot be
        recovered.
        """
        arguments.check_undoable("cpu_adam", beta1, beta2)
        numbers = (lr, beta1, beta2, epsilon, weight_decay, bias_correction)
        tensors = (params, grads, exp_avg, exp_avg_sq)
        return self._call(self._module.rollback, optimizer_id, step, numbers, tensors)

    def destroy_adam(self, optimizer_id: int) -> int:
        """Delete optimizer `optimizer_id`, if it exists: `__del__` calls this. Returns 0."""
        with contextlib.suppress(OpInputError):
            self._module.destroy(_id(optimizer_id))
        return 0

    def _call(
        self,
        function: Any,
        optimizer_id: int,
        step: int,
        numbers: tuple[Any, ...],
        tensors: tuple[Any, ...],
    ) -> int:
        optimizer_id, step = (
            _id(optimizer_id),
            arguments.whole("cpu_adam", "step", step, 1, 64),
        )
        _, beta1, beta2, _, weight_decay, _ = numbers
        arguments.check_rates("cpu_adam", beta1, beta2, float32=True)
        arguments.check_decay("cpu_adam", weight_decay)

        def work(rows: list[list[Any]]) -> None:
            g, p, m, v = rows[0]
            addresses = (tensor.data_ptr() for tensor in (p, g, m, v))
            formats = (self._formats[p.dtype], self._formats[m.dtype])
            try:
                function(optimizer_id, step, *numbers, *addresses, p.numel(), *formats)
            except (LookupError, TypeError, ValueError) as error:
                raise OpInputError(f"cpu_adam: {error}") from error

        p, g, m, v = tensors
        arguments.update_on_host("cpu_adam", _NAMES, [(g, p, m, v)], work)
        return 0


def _id(optimizer_id: int) -> int:
    return arguments.whole("cpu_adam", "optimizer_id", optimizer_id, -(2**63), 64)


class CPUAdamBuilder(OpBuilder):
    """Builds `CPUAdam`. The library has code for each kind of processor, and picks one when it is loaded."""

    NAME: ClassVar[str] = "cpu_adam"

    def sources(self) -> list[str]:
        """Return the one C++ file."""
        return ["csrc/cpu_adam.cpp"]

    def cxx_args(self) -> list[str]:
        """Return flags that let `sqrt` be vectorised, and keep the source's choice of fused products."""
        if sys.platform == "win32":
            return ["/O2", "/openmp", "/fp:precise"]
        openmp = ["-Xclang", "-fopenmp"] if sys.platform == "darwin" else ["-fopenmp"]
        return [
            "-O3",
            *openmp,
            "-ffp-contract=off",
            "-fno-math-errno",
            "-fno-trapping-math",
        ]

    def extra_ldflags(self) -> list[str]:
        """Return flags for torch's own OpenMP library on macOS, where the compiler has none."""
        if sys.platform != "darwin":
            return []
        home = Path(compiler.extensions().__file__ or "").parents[1]
        return [f"-L{home / 'lib'}", "-lomp"]

    def load(self, verbose: bool = True) -> CPUAdam:
        """Return the operator; compile it first if it is neither installed nor in the cache."""
        return CPUAdam(super().load(verbose))
