"""Run torch.distributed's collectives for a device that has none: `StagedProcessGroup`."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch._C import _distributed_c10d as c10d

from accel_train.staged.arithmetic import Reduction, reduction_for
from accel_train.staged.calls import (
    gloo_options,
    reduce_op,
    require_dense,
    require_parts,
    split_sizes,
    tensor_list,
)
from accel_train.staged.device import STAGED, Device
from accel_train.staged.host import Copies, bytes_of
from accel_train.staged.own_messages import OwnMessages
from accel_train.staged.work import CoalescedWork, MessageWork, describe_collective
from accel_train.staged.worker import Worker

__all__ = ["StagedProcessGroup"]

# Any: torch declares members with overloads that nobody calls on a group of Python's.
_ProcessGroup: Any = c10d.ProcessGroup

#: Most handles of small results that a group keeps, and most bytes of their tensors.
_MAX_SMALL_WORKS, _MAX_SMALL_BYTES = 256, 64


class StagedProcessGroup(_ProcessGroup):  # type: ignore[misc]
    """A process group that sends tensors through host memory, over gloo.

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
        # registered because torch then leaves pickled objects on the host_tensor.
        for device_type in ("cpu", device.device_name()):
            self._register_backend(
                torch.device(device_type),
                c10d.ProcessGroup.BackendType.CUSTOM,
                self._gloo,
            )
        self._description = (
            f"rank {rank} of {size}, {name} over gloo for {device.device_name()}"
        )
        # An older gloo cannot be stopped.
        abort = getattr(self._gloo, "abort", lambda: None)
        self._copies = Copies(device)
        self._own_messages = OwnMessages(timeout)
        self._worker = Worker(self._description, self._copies, abort)
        self._close = weakref.finalize(self, self._worker.close)
        #: The latest handles of small results. DistributedDataParallel's `join()` leaves one to C++, which
        #: crashes if it calls a handle whose Python object is gone.
        self._small_works: deque[Any] = deque(maxlen=_MAX_SMALL_WORKS)
        #: The handles of the calls that torch is coalescing; `None` if it is not.
        self._coalesced: list[Any] | None = None

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        """Return the name under which torch.distributed knows it, as `"staged"`."""
        return self._name

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self._gloo._set_default_timeout(timeout)
        self._own_messages.timeout = timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the timeout of the collectives that follow."""
        self._gloo.set_timeout(timeout)
        self._own_messages.timeout = timeout

    def shutdown(self) -> None:
        """End the thread. torch calls this when the group is destroyed."""
        self._close()

    def abort(self) -> None:
        """Cancel the operations that are running."""
        self._close()

    def on_call(self) -> None:
        """Do nothing; a derived class may override this, which each call of the program calls first."""

    # How every collective runs

    def _run(
        self,
        name: str,
        compute: Callable[[list[Tensor]], list[Tensor]],
        *,
        reads: Iterable[Tensor] = (),
        writes: Iterable[Tensor] = (),
        result: Any = None,
    ) -> Any:
        """Start a collective, and return its handle.

        `compute` gets host copies of `reads`, and returns a host tensor for each of
        `writes`, to be copied to it. `result` is the handle's result: by default
        `writes`, or `reads` if that is empty.
        """
        self.on_call()
        reads, writes = list(reads), list(writes)
        require_dense([*reads, *writes])
        if result is None:
            result = writes or reads
        work = self._worker.submit(name, compute, reads, writes, result)
        if sum(tensor.nbytes for tensor in [*reads, *writes]) <= _MAX_SMALL_BYTES:
            self._small_works.append(work)
        return self._add_to_coalesced(work)

    def _add_to_coalesced(self, work: Any) -> Any:
        """Note the handle if torch is coalescing calls; return it."""
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _start_coalescing(self, _device: torch.device) -> None:
        self._coalesced = []

    def _end_coalescing(self, _device: torch.device) -> Any:
        works, self._coalesced = self._coalesced or [], None
        return CoalescedWork(works)

    # Messages between two ranks, and the barrier

    def send(self, tensors: Any, destination: int, tag: int = 0) -> Any:
        """Send a tensor to a rank, or to this one, which receives it with the same tag."""
        [tensor] = tensor_list(tensors)
        self._begin_message(tensor)
        with self._copies.on_current_stream(self._copies.device_index([tensor])):
            host_tensor = tensor.detach().to("cpu", copy=True)
        row = bytes_of(host_tensor.contiguous())
        gloo_work: Any
        if destination == self.rank():
            gloo_work = self._own_messages.send(row, tag)
        else:
            gloo_work = self._gloo.send([row], destination, tag)
        return self._message_work("send", tensor, gloo_work, finish=lambda: None)

    def recv(self, tensors: Any, source: int, tag: int = 0) -> Any:
        """Receive a tensor from a rank, or from this one."""

        def receive_bytes(row: Tensor) -> Any:
            if source == self.rank():
                return self._own_messages.receive(row, tag)
            return self._gloo.recv([row], source, tag)

        return self._receive(tensors, receive_bytes, "recv")

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        """Receive a tensor from any rank; the returned work has the rank."""
        return self._receive(
            tensors, lambda row: self._gloo.recv_anysource([row], tag), "recv"
        )

    def _receive(
        self, tensors: Any, receive_bytes: Callable[[Tensor], Any], name: str
    ) -> Any:
        """Start to receive a tensor, and return the handle.

        `receive_bytes` starts gloo's receive into a row of bytes, and returns its work.
        """
        [tensor] = tensor_list(tensors)
        self._begin_message(tensor)
        host_tensor = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")

        def copy_to_device() -> None:
            with (
                torch.inference_mode(),
                self._copies.on_current_stream(self._copies.device_index([tensor])),
            ):
                tensor.data.copy_(host_tensor)

        gloo_work = receive_bytes(bytes_of(host_tensor))
        return self._message_work(name, tensor, gloo_work, copy_to_device)

    def _begin_message(self, tensor: Tensor) -> None:
        """Check that the tensor can be sent or received, and that the group is open."""
        self.on_call()
        require_dense([tensor])
        self._worker.require_open()

    def _message_work(
        self, name: str, tensor: Tensor, gloo_work: Any, finish: Callable[[], None]
    ) -> Any:
        """Return the handle of a message; waiting for it calls `finish` at the end."""
        description = f"{self._description}: {describe_collective(name, [tensor])}"
        return self._add_to_coalesced(MessageWork(description, gloo_work, finish))

    def barrier(self, opts: Any = None) -> Any:
        """Wait until every rank has called this, after the earlier collectives."""
        options = gloo_options(c10d.BarrierOptions, opts)

        def barrier_on_host(_: list[Tensor]) -> list[Tensor]:
            self._gloo.barrier(options).wait()
            return []

        return self._run("barrier", barrier_on_host)

    # Reductions

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        """Reduce each tensor over all ranks, in place."""
        return self._reduce_all("all_reduce", tensor_list(tensors), opts)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Any:
        """Reduce all tensors over all ranks, in place."""
        return self._reduce_all("all_reduce_coalesced", list(tensors), opts)

    def _reduce_all(self, name: str, tensors: list[Tensor], opts: Any) -> Any:
        """Start to reduce all tensors over all ranks, in place; return the handle."""
        reductions = self._reductions(tensors, opts)

        def reduce_all_on_host(host_tensors: list[Tensor]) -> list[Tensor]:
            self._reduce_hosts(reductions, host_tensors, opts)
            return host_tensors

        return self._run(name, reduce_all_on_host, reads=tensors, writes=tensors)

    def _reductions(self, tensors: Sequence[Tensor], opts: Any) -> list[Reduction]:
        """Return for each tensor the steps of the reduction that `opts` has."""
        return [reduction_for(t.dtype, reduce_op(opts), self.size()) for t in tensors]

    def _reduce_hosts(
        self, reductions: list[Reduction], host_tensors: list[Tensor], opts: Any
    ) -> None:
        """Reduce host tensors over all ranks, in place."""
        gloo_tensors = []
        works = []
        for reduction, host_tensor in zip(reductions, host_tensors, strict=True):
            gloo_tensor = reduction.to_gloo(host_tensor)
            gloo_tensors.append(gloo_tensor)
            if gloo_tensor.numel():
                options = gloo_options(c10d.AllreduceOptions, opts, reduction.op)
                works.append(self._gloo.allreduce([gloo_tensor], options))
        _wait_for_all(works)
        for reduction, host_tensor, gloo_tensor in zip(
            reductions, host_tensors, gloo_tensors, strict=True
        ):
            reduction.write_result(host_tensor, gloo_tensor)

    def reduce(self, tensors: Any, opts: Any = None) -> Any:
        """Reduce over all ranks; only the root's tensor changes."""
        tensors = tensor_list(tensors)
        reductions = self._reductions(tensors, opts)
        is_root = gloo_options(c10d.ReduceOptions, opts).rootRank == self.rank()

        def reduce_on_host(host_tensors: list[Tensor]) -> list[Tensor]:
            for reduction, host_tensor in zip(reductions, host_tensors, strict=True):
                gloo_tensor = reduction.to_gloo(host_tensor)
                if gloo_tensor.numel():
                    options = gloo_options(c10d.ReduceOptions, opts, reduction.op)
                    self._gloo.reduce([gloo_tensor], options).wait()
                if is_root:
                    reduction.write_result(host_tensor, gloo_tensor)
            return host_tensors if is_root else []

        return self._run(
            "reduce",
            reduce_on_host,
            reads=tensors,
            writes=tensors if is_root else [],
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
        reductions = self._reductions(inputs, opts)

        def reduce_scatter_on_host(host_tensors: list[Tensor]) -> list[Tensor]:
            return [
                self._scatter_reduced(reduction, host_tensor, output.shape, opts)
                for reduction, host_tensor, output in zip(
                    reductions, host_tensors, outputs, strict=True
                )
            ]

        return self._run(
            "reduce_scatter", reduce_scatter_on_host, reads=inputs, writes=outputs
        )

    # The names that torch before 2.13 calls.
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _scatter_reduced(
        self, reduction: Reduction, host_tensor: Tensor, shape: torch.Size, opts: Any
    ) -> Tensor:
        """Reduce `host_tensor` over all ranks; return this rank's part of it, of that shape."""
        gloo_tensor = reduction.to_gloo(host_tensor).view(-1)
        reduced_part = gloo_tensor.new_empty(gloo_tensor.numel() // self.size())
        if reduced_part.numel():
            options = gloo_options(c10d.ReduceScatterOptions, opts, reduction.op)
            self._gloo._reduce_scatter_base(reduced_part, gloo_tensor, options).wait()
        part = torch.empty(shape, dtype=host_tensor.dtype)
        reduction.write_result(part, reduced_part, separate_memory=True)
        return part

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Reduce `inputs[0][r]` over all ranks, for each rank `r`, which gets the result.

        The tensors for different `r` may differ in size.
        """
        output, parts = tensor_list(outputs)[0], list(inputs[0])
        require_parts(parts[self.rank()].numel(), output.numel(), 1)
        reductions = self._reductions(parts, opts)
        are_equal = len({part.numel() for part in parts}) == 1

        def reduce_scatter_on_host(host_tensors: list[Tensor]) -> list[Tensor]:
            if are_equal:
                joined = torch.cat([part.view(-1) for part in host_tensors])
                return [
                    self._scatter_reduced(reductions[0], joined, output.shape, opts)
                ]
            # gloo scatters only equal parts: reduce all of them on every rank.
            self._reduce_hosts(reductions, host_tensors, opts)
            return [host_tensors[self.rank()].view(output.shape)]

        return self._run(
            "reduce_scatter", reduce_scatter_on_host, reads=parts, writes=[output]
        )

    # Data movement

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        """Copy the root's tensor to all ranks."""
        tensors = tensor_list(tensors)
        options = gloo_options(c10d.BroadcastOptions, opts)
        is_root = options.rootRank == self.rank()

        def broadcast_hosts(host_tensors: list[Tensor]) -> None:
            rows = [bytes_of(host_tensor) for host_tensor in host_tensors]
            _wait_for_all(
                self._gloo.broadcast([row], options) for row in rows if row.numel()
            )

        def send(host_tensors: list[Tensor]) -> list[Tensor]:
            broadcast_hosts(host_tensors)
            return []

        def receive(_: list[Tensor]) -> list[Tensor]:
            results = self._empty_like(tensors)
            broadcast_hosts(results)
            return results

        if is_root:
            return self._run("broadcast", send, reads=tensors)
        return self._run("broadcast", receive, writes=tensors)

    def _empty_like(self, tensors: Iterable[Tensor]) -> list[Tensor]:
        """Return a host tensor of the same shape and type for each tensor, with any values."""
        return [self._worker.memory.empty_like(tensor) for tensor in tensors]

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
        options = gloo_options(c10d.AllgatherOptions, opts)

        def all_gather_on_host(host_tensors: list[Tensor]) -> list[Tensor]:
            results = self._empty_like(outputs)
            works = []
            for result, host_tensor in zip(results, host_tensors, strict=True):
                if host_tensor.numel():
                    row, own_row = bytes_of(result), bytes_of(host_tensor)
                    works.append(self._gloo._allgather_base(row, own_row, options))
            _wait_for_all(works)
            return results

        return self._run("all_gather", all_gather_on_host, reads=inputs, writes=outputs)

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Gather every rank's `inputs[0]` into the list `outputs[0]`.

        The sizes may differ between ranks.
        """
        return self._all_gather(outputs, [outputs[0]], inputs, opts)

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Gather `inputs[i]` of every rank `r` into `outputs[r][i]`, for each `i`.

        The sizes may differ between ranks.
        """
        inputs = list(inputs)
        if [len(row) for row in outputs] != [len(inputs)] * self.size():
            raise ValueError(
                f"output lists of {[len(row) for row in outputs]} tensors: expected a list for each of the "
                f"{self.size()} ranks, with a tensor for each of the {len(inputs)} inputs"
            )
        parts_of_inputs = [list(parts) for parts in zip(*outputs, strict=True)]
        return self._all_gather(outputs, parts_of_inputs, inputs, opts)

    def _all_gather(
        self,
        result: Any,
        parts_of_inputs: Sequence[Sequence[Tensor]],
        inputs: Iterable[Tensor],
        opts: Any,
    ) -> Any:
        """Gather every rank's `inputs[i]` into the list `parts_of_inputs[i]`; return the handle.

        `result` is the handle's result.
        """
        inputs = tensor_list(inputs)
        for parts, source in zip(parts_of_inputs, inputs, strict=True):
            require_parts(parts[self.rank()].nbytes, source.nbytes, 1)

        def all_gather_on_host(host_tensors: list[Tensor]) -> list[Tensor]:
            all_results = []
            for parts, host_tensor in zip(parts_of_inputs, host_tensors, strict=True):
                results = self._empty_like(parts)
                rows = [bytes_of(part) for part in results]
                self._gather_rows(rows, bytes_of(host_tensor), opts)
                all_results += results
            return all_results

        return self._run(
            "all_gather",
            all_gather_on_host,
            reads=inputs,
            writes=[part for parts in parts_of_inputs for part in parts],
            result=result,
        )

    def _gather_rows(self, rows: list[Tensor], own_row: Tensor, opts: Any) -> None:
        """Gather every rank's `own_row` of bytes into `rows`, whose sizes may differ."""
        if len({row.numel() for row in rows}) > 1:
            rows[self.rank()].copy_(own_row)
            self._broadcast_each(rows, opts)
        elif own_row.numel():
            options = gloo_options(c10d.AllgatherOptions, opts)
            self._gloo.allgather([rows], [own_row], options).wait()

    def _broadcast_each(self, rows: list[Tensor], opts: Any) -> None:
        """Broadcast row `r` from rank `r`, for all `r`: gloo's `allgather` needs equal sizes."""
        works = []
        for root, row in enumerate(rows):
            options = gloo_options(c10d.BroadcastOptions, opts)
            options.rootRank = root
            if row.numel():
                works.append(self._gloo.broadcast([row], options))
        _wait_for_all(works)

    def gather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Gather every rank's `inputs[0]` into the root's list `outputs[0]`.

        Other ranks pass no list.
        """
        source = tensor_list(inputs)[0]
        options = gloo_options(c10d.GatherOptions, opts)
        is_root = options.rootRank == self.rank()
        parts = list(outputs[0]) if is_root else []

        def gather_on_host(host_tensors: list[Tensor]) -> list[Tensor]:
            results = self._empty_like(parts)
            rows = [[bytes_of(part) for part in results]] if is_root else []
            if source.numel():
                self._gloo.gather(rows, [bytes_of(host_tensors[0])], options).wait()
            return results

        return self._run(
            "gather", gather_on_host, reads=[source], writes=parts, result=outputs
        )

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Send each tensor of the root's list `inputs[0]` to one rank.

        Other ranks pass no list.
        """
        target = tensor_list(outputs)[0]
        options = gloo_options(c10d.ScatterOptions, opts)
        is_root = options.rootRank == self.rank()
        parts = list(inputs[0]) if is_root else []

        def scatter_on_host(host_tensors: list[Tensor]) -> list[Tensor]:
            [result] = self._empty_like([target])
            rows = [[bytes_of(part) for part in host_tensors]] if is_root else []
            if target.numel():
                self._gloo.scatter([bytes_of(result)], rows, options).wait()
            return [result]

        return self._run("scatter", scatter_on_host, reads=parts, writes=[target])

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
        """Exchange parts of `inputs` with all ranks, and write what arrives to `outputs`.

        `received` and `sent`: the number of bytes of the part from and for each rank.
        """
        options = gloo_options(c10d.AllToAllOptions, opts)

        def all_to_all_on_host(host_tensors: list[Tensor]) -> list[Tensor]:
            row = torch.cat([bytes_of(host_tensor) for host_tensor in host_tensors])
            arrived = torch.empty(sum(received), dtype=torch.uint8)
            self._gloo.alltoall_base(arrived, row, received, sent, options).wait()
            results = self._empty_like(outputs)
            # Split by the outputs, not by the ranks: there may be one output for all.
            pieces = torch.split(arrived, [result.nbytes for result in results])
            for result, piece in zip(results, pieces, strict=True):
                bytes_of(result).copy_(piece)
            return results

        return self._run("all_to_all", all_to_all_on_host, reads=inputs, writes=outputs)


def _wait_for_all(works: Iterable[Any]) -> None:
    """Start all operations of an iterator, then wait for each."""
    for work in list(works):
        work.wait()


def _hide_from_dynamo(cls: type) -> None:
    """Make torch.compile run the members of a class, and what they call, without compiling them.

    A compiled DistributedDataParallel calls the group from C++ while Dynamo watches the thread, and Dynamo
    cannot trace a process group. This is `torch.compiler.disable`, without its import of `torch._dynamo`,
    which takes a second.
    """
    eval_frame: Any = torch._C._dynamo.eval_frame
    if not hasattr(eval_frame, "_FrameExecStrategy"):
        return  # an older torch
    skip = eval_frame._FrameAction.SKIP
    strategy = eval_frame._FrameExecStrategy(skip, skip)
    for member in vars(cls).values():
        if isinstance(member, FunctionType):
            eval_frame.set_code_exec_strategy(member.__code__, strategy)


_hide_from_dynamo(StagedProcessGroup)
