"""Adam and AdamW on the CPU, compiled: vectorised for the processor at hand and on torch's threads."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from accel_core._support.torch_import import import_torch
from accel_core.errors import OpInputError
from accel_core.ops import compiler
from accel_core.ops.builder import OpBuilder

__all__ = ["CPUAdam", "CPUAdamBuilder"]


class CPUAdam:
    """The functions of DeepSpeed's `cpu_adam`, without ZenFlow's, on the compiled module.

    Parameters and gradients are float32, bfloat16 or float16; the two states are float32 or of the
    parameters' type. Computing is in float32. In float32 a step equals that of DeepSpeed's own operator to
    the last bit, for any number of threads.
    """

    def __init__(self, module: ModuleType) -> None:
        torch = import_torch()
        self._module: Any = module
        self._strided = torch.strided
        self._formats = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
        #: The instructions in use: `"AVX512"`, `"AVX2"`, `"NEON"` or `"baseline"`.
        self.capability: str = module.capability

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
        """Open optimizer `optimizer_id`: AdamW where `adamw_mode`, else Adam. Returns 0.

        The other values are those of the log line; each update brings its own.
        """
        self._module.create(optimizer_id, beta1, beta2, adamw_mode)
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
        """One step on one parameter, in place; `step` counts from 1. Returns 0.

        Raises `OpInputError` for an optimizer that was not created, and for tensors that do not match.
        """
        scalars = (optimizer_id, step, lr, beta1, beta2, epsilon, weight_decay, bias_correction)
        return self._call(self._module.update, scalars, (params, grads, exp_avg, exp_avg_sq))

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

        Raises `OpInputError` as `adam_update` does, and for other types, which have lost the step.
        """
        scalars = (optimizer_id, step, lr, beta1, beta2, epsilon, weight_decay, bias_correction)
        return self._call(self._module.rollback, scalars, (params, grads, exp_avg, exp_avg_sq))

    def destroy_adam(self, optimizer_id: int) -> int:
        """Forget optimizer `optimizer_id`. Returns 0."""
        self._module.destroy(optimizer_id)
        return 0

    def _call(self, function: Any, scalars: tuple[Any, ...], tensors: tuple[Any, ...]) -> int:
        if scalars[1] < 1:
            raise OpInputError(f"cpu_adam: step is {scalars[1]}; expected 1 or more")
        self._check(*tensors)
        p, _, m, _ = tensors
        # The loop goes over memory in its order, so that all four need the same. A view is worked on as a
        # copy, which then replaces its contents; the gradient is only read.
        dense = [tensor.detach().contiguous() for tensor in tensors]
        addresses = (tensor.data_ptr() for tensor in dense)
        try:
            function(*scalars, *addresses, p.numel(), self._formats[p.dtype], self._formats[m.dtype])
        except (LookupError, TypeError) as error:
            raise OpInputError(f"cpu_adam: {error}") from error
        for index in (0, 2, 3):
            if not tensors[index].is_contiguous():
                tensors[index].detach().copy_(dense[index])
        return 0

    def _check(self, p: Any, g: Any, m: Any, v: Any) -> None:
        for name, tensor in (("params", p), ("grads", g), ("exp_avg", m), ("exp_avg_sq", v)):
            if tensor.device.type != "cpu" or tensor.layout != self._strided:
                raise OpInputError(
                    f"cpu_adam: {name} is a {tensor.layout} tensor on {tensor.device}; expected a dense one "
                    "on cpu"
                )
            if tensor.dtype not in self._formats:
                known = ", ".join(map(str, self._formats))
                raise OpInputError(f"cpu_adam: {name} is {tensor.dtype}; expected one of {known}")
            if tensor.numel() != p.numel():
                raise OpInputError(
                    f"cpu_adam: {name} has {tensor.numel()} elements, params {p.numel()}; expected as many"
                )
        if g.dtype != p.dtype:
            raise OpInputError(f"cpu_adam: grads are {g.dtype}, params {p.dtype}; expected the same")
        if m.dtype != v.dtype or (m.dtype != p.dtype and self._formats[m.dtype]):
            raise OpInputError(
                f"cpu_adam: exp_avg is {m.dtype}, exp_avg_sq {v.dtype}; "
                f"expected both float32 or both {p.dtype}"
            )


class CPUAdamBuilder(OpBuilder):
    """Builds `CPUAdam`. The library holds code for each kind of processor and chooses when it is loaded."""

    NAME: ClassVar[str] = "cpu_adam"

    def sources(self) -> list[str]:
        """One file of C++."""
        return ["csrc/cpu_adam.cpp"]

    def cxx_args(self) -> list[str]:
        """Without these, `sqrt` is not vectorised; and which products are fused is written in the source."""
        if sys.platform == "win32":
            return ["/O2", "/openmp", "/fp:precise"]
        openmp = ["-Xclang", "-fopenmp"] if sys.platform == "darwin" else ["-fopenmp"]
        return ["-O3", *openmp, "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]

    def extra_ldflags(self) -> list[str]:
        """The OpenMP library that torch brings, on macOS, where the compiler has none."""
        if sys.platform != "darwin":
            return []
        home = Path(compiler.extensions().__file__ or "").parents[1]
        return [f"-L{home / 'lib'}", "-lomp"]

    def load(self, verbose: bool = True) -> CPUAdam:
        """The operator; compiled first where it is neither installed nor in the cache."""
        return CPUAdam(super().load(verbose))
