"""Make DeepSpeed's builders report when they compile, and check the arguments of their operators.

DeepSpeed compiles silently, and its C++ for the CPU does not check arguments. A list that is too short, a
tensor of a wrong type, or an optimizer that was never created crashes Python. The builder's class remains
DeepSpeed's; only the method `load` is replaced.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from accel_core.errors import OpInputError
from accel_train.launch.variables import LOCAL_RANK
from accel_train.ops import arguments

__all__ = ["CheckedOperator", "wrap_load"]


class _UpdateSignature(NamedTuple):
    """The arguments of an optimizer's update in DeepSpeed's C++."""

    #: The names of the numeric arguments between `step` and the tensors.
    numbers: tuple[str, ...]
    #: The names of the state tensors, which follow the parameter and the gradient.
    states: tuple[str, ...]


#: For each operator, the arguments of its update, in the order of DeepSpeed's csrc/adam/cpu_adam_impl.cpp,
#: csrc/adagrad/cpu_adagrad.cpp and csrc/lion.
_UPDATES = {
    "cpu_adam": _UpdateSignature(
        ("lr", "beta1", "beta2", "epsilon", "weight_decay", "bias_correction"),
        ("exp_avg", "exp_avg_sq"),
    ),
    "cpu_adagrad": _UpdateSignature(("lr", "epsilon", "weight_decay"), ("exp_avg_sq",)),
    "cpu_lion": _UpdateSignature(
        ("lr", "beta1", "beta2", "weight_decay"), ("exp_avg",)
    ),
}
_ADAM_LISTS = ("gradients", "parameters", "exp_avg", "exp_avg_sq")


def wrap_load(
    builder_class: Any,
    is_built: Callable[[Any], bool],
    build_folder: Callable[[Any], str],
    lock_file: Callable[[Any], Path | None],
) -> None:
    """Replace `builder_class.load` with a method that reports compilation and returns a checked operator.

    Only the first rank on each host reports compilation, on stderr. `is_built(builder)` returns whether
    nothing is left to compile. `build_folder(builder)` returns the folder for the compiled module.
    `lock_file(builder)` returns the lock file that torch would wait for, or `None`. A second call changes
    nothing.
    """
    original = builder_class.load
    if getattr(original, "is_patched_by_accel", False):
        return

    @functools.wraps(original)
    def load(self: Any, *args: Any, **kwargs: Any) -> Any:
        is_loaded = self.name in getattr(self, "_loaded_ops", {})
        is_first_rank_of_host = LOCAL_RANK.read(os.environ) == 0
        if is_first_rank_of_host and not is_loaded and not is_built(self):
            sys.stderr.write(
                _compilation_notice(self.name, build_folder(self), lock_file(self))
            )
        is_verbose_passed_by_position = bool(args)
        if not is_verbose_passed_by_position:
            # Without `verbose`, torch includes the compiler's output in its error.
            kwargs.setdefault("verbose", False)
        compiled_module = original(self, *args, **kwargs)
        return _with_checks_of_arguments(self, compiled_module)

    load.is_patched_by_accel = True  # type: ignore[attr-defined]
    builder_class.load = load


def _compilation_notice(operator: str, folder: str, lock: Path | None) -> str:
    """Return the line to print before torch compiles `operator` in `folder`.

    `lock` is the file for which torch waits before it compiles, or `None` if there is no such file.
    """
    if lock is not None:
        return (
            f"accel-core: torch waits for the lock file {lock}, because another process is compiling "
            f"DeepSpeed's {operator}, or was killed while compiling. If no process is compiling: rm {lock}\n"
        )
    return (
        f"accel-core: compiling DeepSpeed's {operator} once, which may take minutes. The compiled module is "
        f"kept in {folder}\n"
    )


def _with_checks_of_arguments(builder: Any, module: Any) -> Any:
    """Return the loaded module, wrapped in a `CheckedOperator` if it is an optimizer in C++ for the CPU."""
    if builder.name in _UPDATES:
        return _get_checked_operator(builder.name, module)
    if builder.name == "fused_adam" and _are_cpu_sources(builder.sources()):
        return _get_checked_operator(builder.name, module)
    return module


def _are_cpu_sources(sources: Sequence[str]) -> bool:
    """Return whether all source files are C++ for the CPU. Files with the suffix `.dp.cpp` are SYCL."""
    for source in sources:
        is_sycl = source.endswith(".dp.cpp")
        if is_sycl or not source.endswith(".cpp"):
            return False
    return True


# Cached, because the operator of a module must remember the optimizers that were created in the module.
@functools.cache
def _get_checked_operator(op: str, module: Any) -> CheckedOperator:
    return CheckedOperator(op, module)


class CheckedOperator:
    """A compiled DeepSpeed operator whose optimizer updates check their arguments. Other calls are unchanged.

    An update raises `OpInputError`, before it changes anything, if the optimizer was not created, if tensors
    do not match, are not dense or are not on the CPU, or if a number is out of range. Non-contiguous tensors
    are updated too, although DeepSpeed's C++ leaves them unchanged. Autograd is notified of the changes.
    """

    def __init__(self, op: str, module: Any) -> None:
        self._op = op
        self._module = module
        self._created_ids: set[int] = set()
        optimizer = op.removeprefix("cpu_")
        self._checks: dict[str, Callable[..., Any]] = {
            f"create_{optimizer}": self._create,
            f"destroy_{optimizer}": self._destroy,
            f"{optimizer}_update": self._update,
            f"{optimizer}_rollback": self._roll_back,
            "multi_tensor_adam": self._multi_tensor_adam,
        }

    def __getattr__(self, name: str) -> Any:
        """Return the module's function named `name`, wrapped in its check if there is one."""
        # Copying and pickling look up private names, which the module does not have.
        if name.startswith("_"):
            raise AttributeError(name)
        compiled_function = getattr(self._module, name)
        check = self._checks.get(name)
        if check is None:
            return compiled_function

        @functools.wraps(compiled_function)
        def checked_function(*args: Any) -> Any:
            return check(compiled_function, *args)

        return checked_function

    def __deepcopy__(self, memo: Any) -> CheckedOperator:
        # A compiled module exists only once, so a copy would refer to the same optimizers.
        return self

    def _create(self, compiled_function: Any, optimizer_id: Any, *settings: Any) -> Any:
        """Create an optimizer with the compiled function, and record the optimizer's id."""
        optimizer_id = arguments.require_whole_number(
            self._op, "optimizer_id", optimizer_id, -(2**31), 32
        )
        result = compiled_function(optimizer_id, *settings)
        self._created_ids.add(optimizer_id)
        return result

    def _destroy(self, compiled_function: Any, optimizer_id: Any) -> Any:
        """Destroy an optimizer with the compiled function, and remove the record of the optimizer's id."""
        self._created_ids.discard(optimizer_id)
        return compiled_function(optimizer_id)

    def _update(
        self,
        compiled_function: Any,
        optimizer_id: Any,
        step: Any,
        *numbers_and_tensors: Any,
    ) -> Any:
        """Check the arguments of an update, then call the compiled function on contiguous tensors.

        `numbers_and_tensors` has the numbers of the signature in `_UPDATES`, then the parameter, the gradient
        and the states.
        """
        signature = _UPDATES[self._op]
        # The parameter and the gradient come before the states.
        tensor_count = 2 + len(signature.states)
        if len(numbers_and_tensors) != len(signature.numbers) + tensor_count:
            # The compiled function raises an error with the expected arguments.
            return compiled_function(optimizer_id, step, *numbers_and_tensors)
        if optimizer_id not in self._created_ids:
            create = f"create_{self._op.removeprefix('cpu_')}"
            raise OpInputError(
                f"{self._op}: optimizer {optimizer_id} was not created. "
                f"Next step: call {create}({optimizer_id}, …)"
            )
        number_count = len(signature.numbers)
        number_values = numbers_and_tensors[:number_count]
        numbers = dict(zip(signature.numbers, number_values, strict=True))
        step = self._validate_step(step, numbers, bits=64)
        parameter, gradient, *states = numbers_and_tensors[number_count:]

        def update_contiguous(rows: Sequence[Sequence[Any]]) -> Any:
            [row] = rows
            dense_gradient, dense_parameter, *dense_states = row
            return compiled_function(
                optimizer_id,
                step,
                *numbers.values(),
                dense_parameter,
                dense_gradient,
                *dense_states,
            )

        names = ("grads", "params", *signature.states)
        row = (gradient, parameter, *states)
        return arguments.update_on_host(self._op, names, [row], update_contiguous)

    def _roll_back(
        self,
        compiled_function: Any,
        optimizer_id: Any,
        step: Any,
        *numbers_and_tensors: Any,
    ) -> Any:
        """Check that a step of `cpu_adam` can be undone, then undo the step with the checks of `_update`.

        Raises `OpInputError` if a tensor is not float32.
        """
        # For any other number of arguments, the compiled function raises an error.
        has_six_numbers_and_four_tensors = len(numbers_and_tensors) == 10
        if has_six_numbers_and_four_tensors:
            lr, beta1, beta2, _epsilon, weight_decay, _bias_correction, *tensors = (
                numbers_and_tensors
            )
            arguments.check_undoable(self._op, beta1, beta2, weight_decay, lr)
            for tensor in tensors:
                if str(getattr(tensor, "dtype", "")) != "torch.float32":
                    raise OpInputError(
                        f"{self._op}: only steps in float32 can be rolled back"
                    )
        return self._update(compiled_function, optimizer_id, step, *numbers_and_tensors)

    def _multi_tensor_adam(
        self,
        compiled_function: Any,
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
        """Check the arguments of `multi_tensor_adam`, then call it on contiguous tensors."""
        lists = arguments.named_lists(self._op, _ADAM_LISTS, tensor_lists)
        arguments.check_mode(self._op, mode)
        checked_numbers = {
            "lr": lr,
            "beta1": beta1,
            "beta2": beta2,
            "epsilon": epsilon,
            "weight_decay": weight_decay,
        }
        step = self._validate_step(step, checked_numbers, bits=32)
        numbers = (lr, beta1, beta2, epsilon, step, mode, bias_correction, weight_decay)

        def update_contiguous(rows: Sequence[Sequence[Any]]) -> Any:
            # One list for the gradients, one for the parameters, and so on.
            columns: list[list[Any]] = [[] for _ in _ADAM_LISTS]
            for row in rows:
                for column, tensor in zip(columns, row, strict=True):
                    column.append(tensor)
            return compiled_function(chunk_size, noop_flag, columns, *numbers)

        # One row for each parameter, with its gradient and its states.
        rows = list(zip(*lists.values(), strict=True))
        return arguments.update_on_host(self._op, _ADAM_LISTS, rows, update_contiguous)

    def _validate_step(self, step: Any, numbers: dict[str, Any], *, bits: int) -> int:
        """Check the decay rates and the weight decay in `numbers`, and return `step` as an int.

        Raises `OpInputError` if a number is out of range, or if the step does not fit in a signed integer of
        `bits` bits.
        """
        if "beta1" in numbers:
            arguments.check_rates(
                self._op, numbers["beta1"], numbers["beta2"], float32=True
            )
        arguments.check_decay(self._op, numbers["weight_decay"])
        return arguments.require_whole_number(self._op, "step", step, 1, bits)
