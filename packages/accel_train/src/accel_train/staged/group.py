"""`StagedProcessGroup`: torch.distributed's collectives for a device that has none."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch._C import _distributed_c10d as c10d

from accel_train.staged.arithmetic import Reduction, reduction
from accel_train.staged.calls import (
    listed,
    options,
    reduce_op,
    require_dense,
    require_parts,
    split_sizes,
)
from accel_train.staged.device import STAGED, Device
from accel_train.staged.host import Copies, bytes_of
from accel_train.staged.work import MessageWork, Together, described
from accel_train.staged.worker import Worker

__all__ = ["StagedProcessGroup"]

# Any: torch declares members with overloads that nobody calls on a group of Python's.
_ProcessGroup: Any = c10d.ProcessGroup


class StagedProcessGroup(_ProcessGroup):  # type: ignore[misc]
    """A process group whose tensors travel through host memory, over gloo.

    It accepts tensors of the device and of the CPU, of every data type, contiguous or
    not, empty or not. Results equal those of gloo for the same tensors on the CPU. Every
    collective returns a `Work`, and runs in a thread of the group, in parallel to the
    program. `wait()` of a failed collective raises `CommunicationError`, a
    `RuntimeError`.

    Members have the names and the arguments that torch.distributed calls them with.
    """

    def __init__(
        self,
        device: Device,
        store: Any,
        rank: int,
        size: int,
        timeout: timedelta,
        *,
        name: str = STAGED,
    ) -> None:
        super().__init__(rank, size)
        self._name = name
        self._gloo: Any = c10d.ProcessGroupGloo(store, rank, size, timeout)
        # DeviceMesh finds a group by the name that its backends keep. The CPU is
        # registered because torch then leaves pickled objects on the host.
        for kind in ("cpu", device.device_name()):
            self._register_backend(
                torch.device(kind), c10d.ProcessGroup.BackendType.CUSTOM, self._gloo
            )
        self._where = (
            f"rank {rank} of {size}, {name} over gloo for {device.device_name()}"
        )
        # Older ones cannot be stopped.
        abort = getattr(self._gloo, "abort", lambda: None)
        self._copies = Copies(device)
        self._worker = Worker(self._where, self._copies, abort)
        self._close = weakref.finalize(self, self._worker.close)
        self._together: list[Any] | None = None

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        """Return the name under which torch.distributed knows it, as `"staged"`."""
        return self._name

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self._gloo._set_default_timeout(timeout)

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the timeout of the collectives that follow."""
        self._gloo.set_timeout(timeout)

    def shutdown(self) -> None:
        """End the thread. torch calls this when the group is destroyed."""
        self._close()

    def abort(self) -> None:
        """Cancel the operations that are running."""
        self._close()

    def on_call(self) -> None:
        """Do nothing; a derived class is told here of each collective and message."""

    # How all of them run

    def _run(
        self,
        name: str,
        call: Callable[[list[Tensor]], list[Tensor]],
        *,
        reads: Iterable[Tensor] = (),
        writes: Iterable[Tensor] = (),
        result: Any = None,
    ) -> Any:
        """Start a collective: `call` makes of copies of `reads` what `writes` get."""
        self.on_call()
        reads, writes = list(reads), list(writes)
        require_dense([*reads, *writes])
        if result is None:
            result = writes or reads
        work = self._worker.submit(name, call, reads, writes, result)
        return self._note(work)

    def _note(self, work: Any) -> Any:
        if self._together is not None:
            self._together.append(work)
        return work

    def _start_coalescing(self, _device: torch.device) -> None:
        self._together = []

    def _end_coalescing(self, _device: torch.device) -> Any:
        works, self._together = self._together or [], None
        return Together(works)

    # Between two ranks; and none

    def send(self, tensors: Any, destination: int, tag: int = 0) -> Any:
        """Send a tensor to a rank, which receives it with the same tag."""
        [tensor] = listed(tensors)
        self._begin_message(tensor)
        with self._copies.here(self._copies.index([tensor])):
            host = tensor.detach().to("cpu", copy=True)
        row = bytes_of(host.contiguous())
        gloo = self._gloo.send([row], destination, tag)
        return self._message("send", tensor, gloo, lambda: None)

    def recv(self, tensors: Any, source: int, tag: int = 0) -> Any:
        """Receive a tensor from a rank."""
        return self._receive(
            tensors, lambda row: self._gloo.recv([row], source, tag), "recv"
        )

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        """Receive a tensor from any rank; the returned work knows from which."""
        return self._receive(
            tensors, lambda row: self._gloo.recv_anysource([row], tag), "recv"
        )

    def _receive(self, tensors: Any, call: Callable[[Tensor], Any], name: str) -> Any:
        [tensor] = listed(tensors)
        self._begin_message(tensor)
        host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")

        def finish() -> None:
            with (
                torch.inference_mode(),
                self._copies.here(self._copies.index([tensor])),
            ):
                tensor.data.copy_(host)

        return self._message(name, tensor, call(bytes_of(host)), finish)

    def _begin_message(self, tensor: Tensor) -> None:
        self.on_call()
        require_dense([tensor])
        self._worker.refuse_if_closed()

    def _message(
        self, name: str, tensor: Tensor, gloo: Any, finish: Callable[[], None]
    ) -> Any:
        what = f"{self._where}: {described(name, [tensor])}"
        return self._note(MessageWork(what, gloo, finish))

    def barrier(self, opts: Any = None) -> Any:
        """Wait until every rank has called this, after the earlier collectives."""
        given = options(c10d.BarrierOptions, opts)

        def call(_: list[Tensor]) -> list[Tensor]:
            self._gloo.barrier(given).wait()
            return []

        return self._run("barrier", call)

    # Those that compute

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        """Reduce each tensor over all ranks, in place."""
        return self._reduce_all("all_reduce", listed(tensors), opts)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Any:
        """Reduce all tensors over all ranks, in place."""
        return self._reduce_all("all_reduce_coalesced", list(tensors), opts)

    def _reduce_all(self, name: str, tensors: list[Tensor], opts: Any) -> Any:
        ways = self._reductions(tensors, opts)

        def call(hosts: list[Tensor]) -> list[Tensor]:
            self._reduce_hosts(ways, hosts, opts)
            return hosts

        return self._run(name, call, reads=tensors, writes=tensors)

    def _reductions(self, tensors: Sequence[Tensor], opts: Any) -> list[Reduction]:
        return [reduction(t.dtype, reduce_op(opts), self.size()) for t in tensors]

    def _reduce_hosts(
        self, ways: list[Reduction], hosts: list[Tensor], opts: Any
    ) -> None:
        """Reduce host tensors over all ranks, in place."""
        wires = [way.send(host) for way, host in zip(ways, hosts, strict=True)]
        _wait(
            self._gloo.allreduce([wire], options(c10d.AllreduceOptions, opts, way.op))
            for way, wire in zip(ways, wires, strict=True)
            if wire.numel()
        )
        for way, host, wire in zip(ways, hosts, wires, strict=True):
            way.end(host, wire)

    def reduce(self, tensors: Any, opts: Any = None) -> Any:
        """Reduce over all ranks; only the root's tensor changes."""
        tensors = listed(tensors)
        ways = self._reductions(tensors, opts)
        at_root = options(c10d.ReduceOptions, opts).rootRank == self.rank()

        def call(hosts: list[Tensor]) -> list[Tensor]:
            for way, host in zip(ways, hosts, strict=True):
                wire = way.send(host)
                if wire.numel():
                    given = options(c10d.ReduceOptions, opts, way.op)
                    self._gloo.reduce([wire], given).wait()
                if at_root:
                    way.end(host, wire)
            return hosts if at_root else []

        return self._run(
            "reduce",
            call,
            reads=tensors,
            writes=tensors if at_root else [],
            result=tensors,
        )

    def reduce_scatter_single(
        self, output: Tensor, source: Tensor, opts: Any = None
    ) -> Any:
        """Reduce `source` over all ranks; each keeps its part, in the order of ranks."""
        return self.reduce_scatter_single_coalesced([output], [source], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: Any, inputs: Any, opts: Any = None
    ) -> Any:
        """Do several `reduce_scatter_single` at once."""
        outputs, inputs = list(outputs), list(inputs)
        for output, source in zip(outputs, inputs, strict=True):
            require_parts(source.numel(), output.numel(), self.size())
        ways = self._reductions(inputs, opts)

        def call(hosts: list[Tensor]) -> list[Tensor]:
            return [
                self._scatter_reduced(way, host, output.shape, opts)
                for way, host, output in zip(ways, hosts, outputs, strict=True)
            ]

        return self._run("reduce_scatter", call, reads=inputs, writes=outputs)

    # What torch before 2.13 calls them.
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _scatter_reduced(
        self, way: Reduction, host: Tensor, shape: torch.Size, opts: Any
    ) -> Tensor:
        """Return this rank's part, of that shape, of what all ranks' `host` make."""
        wire = way.send(host).view(-1)
        made = wire.new_empty(wire.numel() // self.size())
        if made.numel():
            given = options(c10d.ReduceScatterOptions, opts, way.op)
            self._gloo._reduce_scatter_base(made, wire, given).wait()
        part = torch.empty(shape, dtype=host.dtype)
        way.end(part, made, beside=True)
        return part

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Reduce `inputs[0][r]` over all ranks, for each rank `r`, which gets the result.

        The tensors for different `r` may differ in size.
        """
        output, parts = listed(outputs)[0], list(inputs[0])
        require_parts(parts[self.rank()].numel(), output.numel(), 1)
        ways = self._reductions(parts, opts)
        equal = len({part.numel() for part in parts}) == 1

        def call(hosts: list[Tensor]) -> list[Tensor]:
            if equal:
                whole = torch.cat([host.view(-1) for host in hosts])
                return [self._scatter_reduced(ways[0], whole, output.shape, opts)]
            self._reduce_hosts(ways, hosts, opts)  # gloo scatters equal parts alone
            return [hosts[self.rank()].view(output.shape)]

        return self._run("reduce_scatter", call, reads=parts, writes=[output])

    # Those that move

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        """Copy the root's tensor to all ranks."""
        tensors = listed(tensors)
        given = options(c10d.BroadcastOptions, opts)
        at_root = given.rootRank == self.rank()

        def call(hosts: list[Tensor]) -> list[Tensor]:
            made = (
                hosts
                if at_root
                else [self._worker.memory.empty_like(tensor) for tensor in tensors]
            )
            rows = [bytes_of(host) for host in made]
            _wait(self._gloo.broadcast([row], given) for row in rows if row.numel())
            return [] if at_root else made

        if at_root:
            return self._run("broadcast", call, reads=tensors)
        return self._run("broadcast", call, writes=tensors)

    def all_gather_single(
        self, output: Tensor, source: Tensor, opts: Any = None
    ) -> Any:
        """Gather every rank's `source` into `output`, in the order of ranks."""
        return self.all_gather_single_coalesced([output], [source], opts)

    def all_gather_single_coalesced(
        self, outputs: Any, inputs: Any, opts: Any = None
    ) -> Any:
        """Do several `all_gather_single` at once."""
        outputs, inputs = list(outputs), list(inputs)
        for output, source in zip(outputs, inputs, strict=True):
            require_parts(output.nbytes, source.nbytes, self.size())
        given = options(c10d.AllgatherOptions, opts)

        def call(hosts: list[Tensor]) -> list[Tensor]:
            made = [self._worker.memory.empty_like(output) for output in outputs]
            _wait(
                self._gloo._allgather_base(bytes_of(whole), bytes_of(host), given)
                for whole, host in zip(made, hosts, strict=True)
                if host.numel()
            )
            return made

        return self._run("all_gather", call, reads=inputs, writes=outputs)

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Gather every rank's `inputs[0]` into the list `outputs[0]`.

        The sizes may differ between ranks.
        """
        parts, source = list(outputs[0]), listed(inputs)[0]
        require_parts(parts[self.rank()].nbytes, source.nbytes, 1)

        def call(hosts: list[Tensor]) -> list[Tensor]:
            made = [self._worker.memory.empty_like(part) for part in parts]
            rows = [bytes_of(part) for part in made]
            mine = bytes_of(hosts[0])
            if len({row.numel() for row in rows}) > 1:
                rows[self.rank()].copy_(mine)
                self._broadcast_each(rows, opts)
            elif mine.numel():
                given = options(c10d.AllgatherOptions, opts)
                self._gloo.allgather([rows], [mine], given).wait()
            return made

        return self._run(
            "all_gather", call, reads=[source], writes=parts, result=outputs
        )

    def _broadcast_each(self, rows: list[Tensor], opts: Any) -> None:
        """Row `r` from rank `r`: gloo's own `allgather` needs rows of one size."""
        works = []
        for root, row in enumerate(rows):
            given = options(c10d.BroadcastOptions, opts)
            given.rootRank = root
            if row.numel():
                works.append(self._gloo.broadcast([row], given))
        _wait(works)

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Do `allgather` for each list and its input."""
        return Together(
            [
                self.allgather([list(parts)], [source], opts)
                for parts, source in zip(outputs, inputs, strict=True)
            ]
        )

    def gather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Gather every rank's `inputs[0]` into the root's list `outputs[0]`.

        Other ranks pass no list.
        """
        source = listed(inputs)[0]
        given = options(c10d.GatherOptions, opts)
        at_root = given.rootRank == self.rank()
        parts = list(outputs[0]) if at_root else []

        def call(hosts: list[Tensor]) -> list[Tensor]:
            made = [self._worker.memory.empty_like(part) for part in parts]
            rows = [[bytes_of(part) for part in made]] if at_root else []
            if source.numel():
                self._gloo.gather(rows, [bytes_of(hosts[0])], given).wait()
            return made

        return self._run("gather", call, reads=[source], writes=parts, result=outputs)

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Send each tensor of the root's list `inputs[0]` to one rank.

        Other ranks pass no list.
        """
        target = listed(outputs)[0]
        given = options(c10d.ScatterOptions, opts)
        at_root = given.rootRank == self.rank()
        parts = list(inputs[0]) if at_root else []

        def call(hosts: list[Tensor]) -> list[Tensor]:
            made = self._worker.memory.empty_like(target)
            rows = [[bytes_of(host) for host in hosts]] if at_root else []
            if target.numel():
                self._gloo.scatter([bytes_of(made)], rows, given).wait()
            return [made]

        return self._run("scatter", call, reads=parts, writes=[target])

    def all_to_all_single(
        self,
        output: Tensor,
        source: Tensor,
        output_splits: Any,
        input_splits: Any,
        opts: Any = None,
    ) -> Any:
        """Send a part of `source` to each rank and receive one of each into `output`.

        The splits are numbers of rows; without splits the parts are equal.
        """
        received = split_sizes(output, list(output_splits), self.size())
        sent = split_sizes(source, list(input_splits), self.size())
        return self._all_to_all([output], [source], received, sent, opts)

    alltoall_base = all_to_all_single

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Send `inputs[r]` to rank `r`; receive into `outputs[r]` what it sends here."""
        outputs, inputs = list(outputs), list(inputs)
        received, sent = [t.nbytes for t in outputs], [t.nbytes for t in inputs]
        return self._all_to_all(outputs, inputs, received, sent, opts)

    def _all_to_all(
        self,
        outputs: list[Tensor],
        inputs: list[Tensor],
        received: list[int],
        sent: list[int],
        opts: Any,
    ) -> Any:
        given = options(c10d.AllToAllOptions, opts)

        def call(hosts: list[Tensor]) -> list[Tensor]:
            row = torch.cat([bytes_of(host) for host in hosts])
            arrived = torch.empty(sum(received), dtype=torch.uint8)
            self._gloo.alltoall_base(arrived, row, received, sent, given).wait()
            made = [self._worker.memory.empty_like(output) for output in outputs]
            # Cut by the outputs, not by the ranks: there may be one output for all.
            cut = torch.split(arrived, [part.nbytes for part in made])
            for part, piece in zip(made, cut, strict=True):
                bytes_of(part).copy_(piece)
            return made

        return self._run("all_to_all", call, reads=inputs, writes=outputs)


def _wait(works: Iterable[Any]) -> None:
    """Start all, then wait for each."""
    for work in list(works):
        work.wait()
