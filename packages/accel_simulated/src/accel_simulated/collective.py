"""A collective backend with a vendor's name: it runs gloo on copies on the host."""

from __future__ import annotations

import atexit
import sys
import time
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch

# Not torch.distributed: a stand-in is put there while it is still being imported.
from torch._C import _distributed_c10d

from accel_simulated import at_start, faults

__all__ = ["register", "stand_in_for"]

c10d: Any = _distributed_c10d  # whose stub is of another time than its classes

#: Host tensors that gloo's threads may still hold, after its work is done.
_lent: dict[int, weakref.ref[torch.Tensor]] = {}
#: Seconds for which those are waited for; an error's traceback may hold some for ever.
_PATIENCE = 10.0


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
    """A process group; each call copies to the host, runs gloo there, and copies back."""

    def __init__(
        self, name: str, store: Any, rank: int, size: int, timeout: timedelta
    ) -> None:
        super().__init__(rank, size)
        self._name = name
        self._gloo = c10d.ProcessGroupGloo(store, rank, size, timeout)
        # The group's name is kept by its backends, and DeviceMesh finds groups by name.
        for device in ("cpu", device_type()):
            self._register_backend(
                torch.device(device), c10d.ProcessGroup.BackendType.CUSTOM, self._gloo
            )

    def getBackendName(self) -> str:
        return self._name

    def shutdown(self) -> None:
        _take_back()
        super().shutdown()

    def _on_host(self, tensors: list[Any], call: Callable[[list[Any]], Any]) -> _Done:
        """`call` on copies of the tensors, or lists of tensors, then the copies back."""
        faults.meet_collective()
        host = [
            [_host(each) for each in item] if isinstance(item, list) else _host(item)
            for item in tensors
        ]
        work = call(host)
        if work is not None:
            work.wait()
        for ours, theirs in zip(tensors, host, strict=True):
            pairs = (
                zip(ours, theirs, strict=True)
                if isinstance(ours, list)
                else [(ours, theirs)]
            )
            for to, done in pairs:
                to.copy_(done)
        return _Done(tensors)

    # Reductions

    def allreduce(self, tensors: Any, opts: Any = None) -> _Done:
        operation, divisor = self._reduction(opts)
        options = c10d.AllreduceOptions()
        options.reduceOp = operation

        def reduce(host: list[Any]) -> None:
            self._gloo.allreduce(host, options).wait()
            _divided(host, divisor)

        return self._on_host(tensors, reduce)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> _Done:
        return _Done([self.allreduce([tensor], opts).result()[0] for tensor in tensors])

    def reduce(self, tensors: Any, opts: Any = None) -> _Done:
        operation, divisor = self._reduction(opts)
        options = c10d.ReduceOptions()
        options.reduceOp, options.rootRank = operation, opts.rootRank

        def reduce(host: list[Any]) -> None:
            self._gloo.reduce(host, options).wait()
            if self.rank() == options.rootRank:
                _divided(host, divisor)

        return self._on_host(tensors, reduce)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> _Done:
        # Reduce everything, and keep this rank's part: in the order in which allreduce adds.
        faults.meet_collective()
        operation, divisor = self._reduction(opts)
        options = c10d.AllreduceOptions()
        options.reduceOp = operation
        for output, parts in zip(outputs, inputs, strict=True):
            host = [_host(part) for part in parts]
            for part in host:
                self._gloo.allreduce([part], options).wait()
            output.copy_(_divided([host[self.rank()]], divisor)[0])
        return _Done(outputs)

    def _reduce_scatter_base(self, output: Any, input: Any, opts: Any = None) -> _Done:
        return self.reduce_scatter(
            [output.view(-1)], [list(input.reshape(-1).chunk(self.size()))], opts
        )

    def reduce_scatter_single_coalesced(
        self, outputs: Any, inputs: Any, opts: Any = None
    ) -> _Done:
        for output, whole in zip(outputs, inputs, strict=True):
            self._reduce_scatter_base(output, whole, opts)
        return _Done(outputs)

    def _reduction(self, opts: Any) -> tuple[Any, int]:
        """Give gloo's operation and the divisor of its result: it knows no average."""
        operation = opts.reduceOp if opts is not None else c10d.ReduceOp.SUM
        average = operation == c10d.ReduceOp.AVG
        return (c10d.ReduceOp.SUM, self.size()) if average else (operation, 1)

    # Moving

    def broadcast(self, tensors: Any, opts: Any = None) -> _Done:
        options = opts or c10d.BroadcastOptions()
        return self._on_host(tensors, lambda host: self._gloo.broadcast(host, options))

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> _Done:
        return self._on_host(
            outputs,
            lambda host: self._gloo.allgather(host, [_host(each) for each in inputs]),
        )

    def _allgather_base(self, output: Any, input: Any, opts: Any = None) -> _Done:
        # Flat: the output may hold the parts one after the other or stacked.
        return self.allgather(
            [list(output.view(-1).chunk(self.size()))], [input.reshape(-1)]
        )

    def all_gather_single_coalesced(
        self, outputs: Any, inputs: Any, opts: Any = None
    ) -> _Done:
        for output, part in zip(outputs, inputs, strict=True):
            self._allgather_base(output, part)
        return _Done(outputs)

    def gather(self, outputs: Any, inputs: Any, opts: Any) -> _Done:
        return self._on_host(
            outputs,
            lambda host: self._gloo.gather(
                host, [_host(each) for each in inputs], opts
            ),
        )

    def scatter(self, outputs: Any, inputs: Any, opts: Any) -> _Done:
        given = [[_host(each) for each in parts] for parts in inputs]
        return self._on_host(
            outputs, lambda host: self._gloo.scatter(host, given, opts)
        )

    def alltoall_base(
        self, output: Any, input: Any, to: list[int], of: list[int], opts: Any = None
    ) -> _Done:
        return self._on_host(
            [output],
            lambda host: self._gloo.alltoall_base(
                host[0], _host(input).contiguous(), to, of
            ),
        )

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> _Done:
        whole = outputs[0].new_empty(sum(output.numel() for output in outputs))
        sizes = [[each.numel() for each in tensors] for tensors in (outputs, inputs)]
        self.alltoall_base(
            whole, torch.cat([each.reshape(-1) for each in inputs]), *sizes
        )
        for output, part in zip(outputs, whole.split(sizes[0]), strict=True):
            output.copy_(part.view_as(output))
        return _Done(outputs)

    # What torch 2.13 calls them.
    all_gather_single = _allgather_base
    reduce_scatter_single = _reduce_scatter_base
    all_to_all_single = alltoall_base

    def barrier(self, opts: Any = None) -> Any:
        faults.meet_collective()
        return self._gloo.barrier()

    def send(self, tensors: Any, destination: int, tag: int) -> Any:
        faults.meet_collective()
        return self._gloo.send(
            [tensor.detach().cpu() for tensor in tensors], destination, tag
        )

    def recv(self, tensors: Any, source: int, tag: int) -> _Done:
        return self._on_host(tensors, lambda host: self._gloo.recv(host, source, tag))

    # `torch.distributed` collects what is between the two, and calls `..._coalesced` with it.

    def _start_coalescing(self, device: Any) -> None:
        pass

    def _end_coalescing(self, device: Any) -> _Done:
        return _Done([])


def device_type() -> str:
    """Return the device type of the process's simulated device."""
    return at_start.device()[1]


def _divided(host: list[Any], divisor: int) -> list[Any]:
    for tensor in host if divisor != 1 else ():
        whole = not (tensor.is_floating_point() or tensor.is_complex())
        tensor.div_(divisor, rounding_mode="trunc" if whole else None)
    return host


def _host(tensor: torch.Tensor) -> torch.Tensor:
    host = tensor.detach().cpu()  # waits for the tensor's stream
    mark = weakref.ref(host, lambda mark: _lent.pop(id(mark), None))
    _lent[id(mark)] = mark
    return host


def _take_back() -> None:
    """Wait until gloo's threads have dropped the tensors, for which they need Python's lock.

    The group's end waits for these threads, perhaps with that lock: DistributedDataParallel's reducer may be
    the last to hold a group (pytorch#56297). And they abort the process if Python is gone (pytorch#190489).
    """
    end = time.monotonic() + _PATIENCE
    while _lent and time.monotonic() < end:
        time.sleep(0.001)


@atexit.register
def _at_exit() -> None:
    if not hasattr(sys, "last_type"):  # else the error's traceback holds them
        _take_back()


def register(name: str, device: str) -> None:
    """Make `init_process_group(name)` return this group for tensors on `device`."""
    from torch.distributed import Backend

    def create(
        store: Any, rank: int, size: int, timeout: timedelta
    ) -> SimulatedCollective:
        return SimulatedCollective(name, store, rank, size, timeout)

    # A list: of a string torch takes each letter for a device in `default_device_backend_map`.
    Backend.register_backend(name, create, devices=[device])


def stand_in_for(name: str) -> type:
    """Return a class that replaces torch's own `ProcessGroupNCCL` or `ProcessGroupXCCL`."""

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
