"""Checks of `torch.compile`, and of calls of the accelerator in compiled functions."""

from __future__ import annotations

import torch

from accel_core import Accelerator
from accel_testing.conformance.base import BackendTestBase
from accel_testing.conformance.claims import BrokenPromise, require

__all__ = ["TestCompiling"]


class TestCompiling(BackendTestBase):
    """Compiled code gives the same results, and calls of the accelerator do not break the graph."""

    def test_compiles(self, accelerator: Accelerator) -> None:
        """The compile backend compiles a function's forward and backward pass for the device."""

        def function(x: torch.Tensor) -> torch.Tensor:
            return (x * 2 + 1).tanh().sum()

        torch._dynamo.reset()
        compiled = torch.compile(function, backend=accelerator.get_compile_backend())
        on_device = torch.linspace(
            -1, 1, 16, device=accelerator.device()
        ).requires_grad_()
        reference = on_device.detach().clone().requires_grad_()
        torch.autograd.backward(compiled(on_device))
        torch.autograd.backward(function(reference))
        if on_device.grad is None or reference.grad is None:
            raise BrokenPromise("a compiled function did not compute a gradient")
            return
        error = float((on_device.grad - reference.grad).abs().max().item())
        require(
            error < 1e-5,
            f"the gradients of the compiled function differ by {error:.1e}",
        )

    def test_accelerator_calls_break_no_graph(self, accelerator: Accelerator) -> None:
        """Members that return names, counts and booleans can be called inside a compiled function."""
        name = accelerator.name

        def function(x: torch.Tensor) -> torch.Tensor:
            if (
                accelerator.device_name() == name
                or accelerator.is_synchronized_device()
            ):
                x = x + 1
            return x * (accelerator.device_count() > 0)

        torch._dynamo.reset()
        ones = torch.ones(4, device=accelerator.device())
        try:
            torch.compile(function, backend="eager", fullgraph=True)(ones)
        except torch._dynamo.exc.Unsupported as error:
            raise BrokenPromise(
                f"calling the accelerator's members breaks the graph: {str(error)[:600]}"
            ) from error
        except Exception as error:
            raise BrokenPromise(
                f"torch.compile raised {type(error).__name__}: {str(error)[:300]}"
            ) from error
