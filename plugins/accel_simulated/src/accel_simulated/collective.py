"""A collective backend under a vendor's name: gloo, on copies on the host."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch

# Not torch.distributed: a stand-in is put there while it is still being imported.
from torch._C import _distributed_c10d

from accel_simulated import faults

__all__ = ["register", "stand_in_for"]

c10d: Any = _distributed_c10d  # whose stub is of another time than its classes


class _Done(c10d.Work):  # type: ignore[misc]
    """Work that was finished before it was given out."""

    def __init__(self, result: list[Any]) -> None:
        super().__init__()
        self._result = result
        self._future: torch.futures.Future[list[Any]] = torch.futures.Future()
        self._future.set_result(result)

    def wait(self, timeout: timedelta | None = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def get_future(self) -> torch.futures.Future[list[Any]]:
        return self._future

    def result(self) -> list[Any]:
        return self._result


class SimulatedCollective(c10d.ProcessGroup):  # type: ignore[misc]
    """Each call copies to the host, lets gloo do the work there, and copies back."""

    def __init__(self, name: str, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._name = name
        self._gloo = c10d.ProcessGroupGloo(store, rank, size, timeout)

    def getBackendName(self) -> str:
        return self._name

    def _on_host(self, tensors: list[Any], call: Callable[[list[Any]], Any]) -> _Done:
        """`call` on copies of the tensors, or lists of tensors, then the copies back."""
        faults.meet_collective()
        host = [[_host(each) for each in item] if isinstance(item, list) else _host(item) for item in tensors]
        call(host).wait()
        for ours, theirs in zip(tensors, host, strict=True):
            pairs = zip(ours, theirs, strict=True) if isinstance(ours, list) else [(ours, theirs)]
            for to, done in pairs:
                to.copy_(done)
        return _Done(tensors)

    def allreduce(self, tensors: Any, opts: Any = None) -> _Done:
        options = opts or c10d.AllreduceOptions()
        return self._on_host(tensors, lambda host: self._gloo.allreduce(host, options))

    def broadcast(self, tensors: Any, opts: Any = None) -> _Done:
        options = opts or c10d.BroadcastOptions()
        return self._on_host(tensors, lambda host: self._gloo.broadcast(host, options))

    def reduce(self, tensors: Any, opts: Any = None) -> _Done:
        options = opts or c10d.ReduceOptions()
        return self._on_host(tensors, lambda host: self._gloo.reduce(host, options))

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> _Done:
        return self._on_host(
            outputs, lambda host: self._gloo.allgather(host, [_host(each) for each in inputs])
        )

    def _allgather_base(self, output: Any, input: Any, opts: Any = None) -> _Done:
        return self.allgather([list(output.chunk(self.size()))], [input])

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> _Done:
        # gloo has none: reduce everything, and keep this rank's part.
        faults.meet_collective()
        options = c10d.AllreduceOptions()
        options.reduceOp = opts.reduceOp if opts is not None else c10d.ReduceOp.SUM
        for output, parts in zip(outputs, inputs, strict=True):
            host = [_host(part) for part in parts]
            for part in host:
                self._gloo.allreduce([part], options).wait()
            output.copy_(host[self.rank()])
        return _Done(outputs)

    def _reduce_scatter_base(self, output: Any, input: Any, opts: Any = None) -> _Done:
        return self.reduce_scatter([output], [list(input.chunk(self.size()))], opts)

    # What torch 2.13 calls them.
    all_gather_single = _allgather_base
    reduce_scatter_single = _reduce_scatter_base

    def barrier(self, opts: Any = None) -> Any:
        faults.meet_collective()
        return self._gloo.barrier()

    def send(self, tensors: Any, destination: int, tag: int) -> Any:
        faults.meet_collective()
        return self._gloo.send([_host(tensor) for tensor in tensors], destination, tag)

    def recv(self, tensors: Any, source: int, tag: int) -> _Done:
        return self._on_host(tensors, lambda host: self._gloo.recv(host, source, tag))


def _host(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu()  # waits for the tensor's stream


def register(name: str, device: str) -> None:
    """Make `init_process_group(name)` give this for tensors on `device`."""
    from torch.distributed import Backend

    def create(store: Any, rank: int, size: int, timeout: timedelta) -> SimulatedCollective:
        return SimulatedCollective(name, store, rank, size, timeout)

    # A list: of a string torch takes each letter for a device in `default_device_backend_map`.
    Backend.register_backend(name, create, devices=[device])


def stand_in_for(name: str) -> type:
    """A class to take the place of torch's own `ProcessGroupNCCL` or `ProcessGroupXCCL`."""

    class Options:
        """The attributes that torch sets."""

        _timeout = timedelta(minutes=10)

    class StandIn(SimulatedCollective):
        def __init__(self, store: Any, rank: int, size: int, options: Any) -> None:
            super().__init__(name, store, rank, size, options._timeout)

        def _set_sequence_number_for_group(self) -> None:
            pass

    StandIn.Options = Options
    return StandIn
