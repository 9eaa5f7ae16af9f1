"""DeepSpeed's builders as we return them: they report when they compile, and arguments are checked.

DeepSpeed compiles silently, and its C++ for the CPU does not check arguments: a list that is too short, a
tensor of another type or an optimizer that was never created crashes Python. The builder's class stays
DeepSpeed's own; only its `load` differs.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from accel_core.errors import OpInputError
from accel_train.launch.variables import LOCAL_RANK
from accel_train.ops import arguments

__all__ = ["CheckedOperator", "announcing"]

#: Of each update the numbers between `step` and the tensors, and the states after parameter and gradient, in
#: the order of DeepSpeed's C++ (csrc/adam/cpu_adam_impl.cpp, csrc/adagrad/cpu_adagrad.cpp, csrc/lion/…).
_UPDATES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "cpu_adam": (
        ("lr", "beta1", "beta2", "epsilon", "weight_decay", "bias_correction"),
        ("exp_avg", "exp_avg_sq"),
    ),
    "cpu_adagrad": (("lr", "epsilon", "weight_decay"), ("exp_avg_sq",)),
    "cpu_lion": (("lr", "beta1", "beta2", "weight_decay"), ("exp_avg",)),
}
_ADAM_LISTS = ("gradients", "parameters", "exp_avg", "exp_avg_sq")


def announcing(
    builder_class: Any,
    is_ready: Callable[[Any], bool],
    kept: Callable[[Any], str],
) -> None:
    """Make builders of this class report on stderr that they compile, and check arguments of what they load.

    `is_ready` returns whether a builder has nothing left to compile, and `kept` where the result will be.
    Only one rank of a host reports.
    """
    load = builder_class.load
    if getattr(load, "announces", False):
        return

    @functools.wraps(load)
    def announced(self: Any, *args: Any, **kwargs: Any) -> Any:
        is_loaded = self.name in getattr(self, "_loaded_ops", {})
        if not is_loaded and not LOCAL_RANK.read(os.environ) and not is_ready(self):
            sys.stderr.write(
                f"accel-core: compiling DeepSpeed's {self.name}, which may take minutes (once; kept in "
                f"{kept(self)})\n"
            )
        if not args:
            kwargs.setdefault(
                "verbose", False
            )  # torch then puts the compiler's output into its error
        return _checked(self, load(self, *args, **kwargs))

    announced.announces = True  # type: ignore[attr-defined]
    builder_class.load = announced


def _checked(builder: Any, module: Any) -> Any:
    """Give the loaded module, with its arguments checked if it is an optimizer's C++ for the CPU."""
    checked = builder.name in _UPDATES or (
        builder.name == "fused_adam" and _is_for_the_cpu(builder.sources())
    )
    return _operator(builder.name, module) if checked else module


def _is_for_the_cpu(sources: Sequence[str]) -> bool:
    """Whether all are C++ for the CPU; `.dp.cpp` is SYCL."""
    return all(
        source.endswith(".cpp") and not source.endswith(".dp.cpp") for source in sources
    )


@functools.cache  # one for a module: it knows which optimizers were created there
def _operator(op: str, module: Any) -> CheckedOperator:
    return CheckedOperator(op, module)


class CheckedOperator:
    """A compiled module of DeepSpeed; updates of optimizers are checked, all else is passed on unchanged.

    An update raises `OpInputError` before it changes anything: for an optimizer that was not created, for
    tensors that do not match, for tensors that are not dense or not on the CPU, and for numbers out of range.
    Tensors that are not contiguous are updated too (DeepSpeed's C++ leaves them unchanged), and autograd sees
    the change.
    """

    def __init__(self, op: str, module: Any) -> None:
        self._op = op
        self._module = module
        self._created: set[int] = set()
        kind = op.removeprefix("cpu_")
        self._checks: dict[str, Callable[..., Any]] = {
            f"create_{kind}": self._create,
            f"destroy_{kind}": self._destroy,
            f"{kind}_update": self._update,
            f"{kind}_rollback": self._roll_back,
            "multi_tensor_adam": self._multi_tensor_adam,
        }

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what copying and pickling ask for
            raise AttributeError(name)
        found = getattr(self._module, name)
        check = self._checks.get(name)
        if check is None:
            return found

        @functools.wraps(found)
        def checked(*args: Any) -> Any:
            return check(found, *args)

        return checked

    def __deepcopy__(self, memo: Any) -> CheckedOperator:
        return self  # as its module, of which a process has one

    def _create(self, call: Any, optimizer_id: Any, *settings: Any) -> Any:
        optimizer_id = arguments.whole(
            self._op, "optimizer_id", optimizer_id, -(2**31), 32
        )
        made = call(optimizer_id, *settings)
        self._created.add(optimizer_id)
        return made

    def _destroy(self, call: Any, optimizer_id: Any) -> Any:
        self._created.discard(optimizer_id)
        return call(optimizer_id)

    def _update(self, call: Any, optimizer_id: Any, step: Any, *rest: Any) -> Any:
        numbers, states = _UPDATES[self._op]
        if len(rest) != len(numbers) + 2 + len(states):
            return call(optimizer_id, step, *rest)  # which says how many it takes
        if optimizer_id not in self._created:
            create = next(iter(self._checks))
            raise OpInputError(
                f"{self._op}: optimizer {optimizer_id} was not created. Call {create}({optimizer_id}, …)"
            )
        given = dict(zip(numbers, rest, strict=False))
        step = self._checked_numbers(step, given, bits=64)
        p, g, *others = rest[len(numbers) :]

        def work(rows: Sequence[Sequence[Any]]) -> Any:
            gradient, parameter, *tensors = rows[0]
            return call(
                optimizer_id, step, *given.values(), parameter, gradient, *tensors
            )

        names = ("grads", "params", *states)
        return arguments.update_on_host(self._op, names, [(g, p, *others)], work)

    def _roll_back(self, call: Any, optimizer_id: Any, step: Any, *rest: Any) -> Any:
        if len(rest) == 10:
            lr, beta1, beta2, _, weight_decay, _, *tensors = rest
            arguments.check_undoable(self._op, beta1, beta2, weight_decay, lr)
            for tensor in tensors:
                if str(getattr(tensor, "dtype", "")) != "torch.float32":
                    raise OpInputError(
                        f"{self._op}: only steps in float32 can be rolled back"
                    )
        return self._update(call, optimizer_id, step, *rest)

    def _multi_tensor_adam(
        self,
        call: Any,
        chunk_size: Any,
        noop_flag: Any,
        tensor_lists: Any,
        lr: Any,
        beta1: Any,
        beta2: Any,
        epsilon: Any,
        step: Any,
        mode: Any,
        bias_correction: Any,
        weight_decay: Any,
    ) -> Any:
        lists = arguments.named_lists(self._op, _ADAM_LISTS, tensor_lists)
        arguments.check_mode(self._op, mode)
        given = {
            "lr": lr,
            "beta1": beta1,
            "beta2": beta2,
            "epsilon": epsilon,
            "weight_decay": weight_decay,
        }
        step = self._checked_numbers(step, given, bits=32)
        numbers = (lr, beta1, beta2, epsilon, step, mode, bias_correction, weight_decay)

        def work(dense: Sequence[Sequence[Any]]) -> Any:
            columns = [list(tensors) for tensors in zip(*dense, strict=True)] or [
                [] for _ in _ADAM_LISTS
            ]
            return call(chunk_size, noop_flag, columns, *numbers)

        rows = list(zip(*lists.values(), strict=True))
        return arguments.update_on_host(self._op, _ADAM_LISTS, rows, work)

    def _checked_numbers(self, step: Any, given: dict[str, Any], *, bits: int) -> int:
        if "beta1" in given:
            arguments.check_rates(
                self._op, given["beta1"], given["beta2"], float32=True
            )
        arguments.check_decay(self._op, given["weight_decay"])
        return arguments.whole(self._op, "step", step, 1, bits)
