"""Run torch.distributed's collectives for a device without collectives, with `StagedProcessGroup`."""

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

# Typed as Any, because torch declares overloads that are never called on a group written in Python.
_ProcessGroup: Any = c10d.ProcessGroup

#: A collective is small if its tensors have at most this many bytes in all.
_MAX_SMALL_BYTES = 64
#: A group keeps at most this many handles of small collectives.
_MAX_SMALL_WORKS = 256


class StagedProcessGroup(_ProcessGroup):  # type: ignore[misc]
    """A process group that sends tensors through host memory, using gloo.

    The group accepts dense tensors of every data type, on the device and on the CPU, including empty and
    non-contiguous tensors. Results equal those of gloo for the same tensors on the CPU. Every collective
    returns a `Work`, and runs in a thread of the group, in parallel with the program. If a collective failed,
    `wait()` raises `CommunicationError`, a `RuntimeError`.

    torch.distributed defines the names and arguments of the members.
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
        # registered so that torch leaves pickled objects in host memory.
        for device_type in ("cpu", device.device_name()):
            self._register_backend(
                torch.device(device_type),
                c10d.ProcessGroup.BackendType.CUSTOM,
                self._gloo,
            )
        self._description = f"rank {rank} of {size} (backend {name}, over gloo, for {device.device_name()})"
        # gloo in an older torch cannot be aborted.
        abort = getattr(self._gloo, "abort", _do_nothing)
        self._copies = Copies(device)
        self._own_messages = OwnMessages(timeout)
        self._worker = Worker(self._description, self._copies, abort)
        # Also called when the group is garbage collected.
        self._close = weakref.finalize(self, self._worker.close)
        #: The latest handles of small collectives. DistributedDataParallel's `join()` passes such a handle to
        #: C++, which crashes if it calls a handle whose Python object no longer exists.
        self._small_works: deque[Any] = deque(maxlen=_MAX_SMALL_WORKS)
        #: The handles of the calls that torch is coalescing, or `None` if torch is not coalescing.
        self._coalesced: list[Any] | None = None

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        """Return the backend's name in torch.distributed, such as `"staged"`."""
        return self._name

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self._gloo._set_default_timeout(timeout)
        self._own_messages.timeout = timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the timeout of all collectives that are started from now on."""
        self._gloo.set_timeout(timeout)
        self._own_messages.timeout = timeout

    def shutdown(self) -> None:
        """End the group's thread. torch calls this method when the group is destroyed."""
        self._close()

    def abort(self) -> None:
        """End the group's thread, and cancel running operations that do not end soon."""
        self._close()

    def on_call(self) -> None:
        """Do nothing. This method is called at the start of each collective. A subclass may override it."""

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

        `compute` gets host copies of `reads`, and returns a host tensor for each tensor
        in `writes`. Each host tensor is then copied to its tensor in `writes`. `result`
        is the handle's result: by default `writes`, or `reads` if `writes` is empty.
        """
        self.on_call()
        reads, writes = list(reads), list(writes)
        require_dense([*reads, *writes])
        if result is None:
            result = writes or reads
        work = self._worker.submit(name, compute, reads, writes, result)
        total_bytes = sum(tensor.nbytes for tensor in [*reads, *writes])
        if total_bytes <= _MAX_SMALL_BYTES:
            self._small_works.append(work)
        return self._coalesce_if_requested(work)

    def _coalesce_if_requested(self, work: Any) -> Any:
        """Record the handle `work` if torch is coalescing calls, and return the handle."""
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _start_coalescing(self, _device: torch.device) -> None:
        self._coalesced = []

    def _end_coalescing(self, _device: torch.device) -> Any:
        works = self._coalesced or []
        self._coalesced = None
        return CoalescedWork(works)

    # Messages between two ranks, and the barrier

    def send(self, tensors: Any, destination: int, tag: int = 0) -> Any:
        """Send a tensor with a `tag` to the rank `destination`, which may be this rank."""
        [tensor] = tensor_list(tensors)
        self._check_message(tensor)
        with self._copies.on_current_stream(self._copies.device_index([tensor])):
            host_tensor = tensor.detach().to("cpu", copy=True)
        message = bytes_of(host_tensor.contiguous())
        gloo_work: Any
        if destination == self.rank():  # gloo cannot send to the same rank.
            gloo_work = self._own_messages.send(message, tag)
        else:
            gloo_work = self._gloo.send([message], destination, tag)
        return self._create_message_work("send", tensor, gloo_work, _do_nothing)

    def recv(self, tensors: Any, source: int, tag: int = 0) -> Any:
        """Receive a tensor from the rank `source`, which may be this rank."""

        def receive_bytes(row: Tensor) -> Any:
            if source == self.rank():
                return self._own_messages.receive(row, tag)
            return self._gloo.recv([row], source, tag)

        return self._receive(tensors, receive_bytes, "recv")

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        """Receive a tensor from any rank. The returned `Work` reports which rank sent it."""

        def receive_bytes(row: Tensor) -> Any:
            return self._gloo.recv_anysource([row], tag)

        return self._receive(tensors, receive_bytes, "recv")

    def _receive(
        self, tensors: Any, receive_bytes: Callable[[Tensor], Any], name: str
    ) -> Any:
        """Start receiving a tensor, and return the handle.

        `receive_bytes` starts gloo's receive operation into a row of bytes, and returns
        gloo's `Work`.
        """
        [tensor] = tensor_list(tensors)
        self._check_message(tensor)
        host_tensor = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")

        def copy_to_device() -> None:
            with (
                torch.inference_mode(),
                self._copies.on_current_stream(self._copies.device_index([tensor])),
            ):
                tensor.data.copy_(host_tensor)

        gloo_work = receive_bytes(bytes_of(host_tensor))
        return self._create_message_work(name, tensor, gloo_work, copy_to_device)

    def _check_message(self, tensor: Tensor) -> None:
        """Check that the tensor can be sent or received, and that the group is open."""
        self.on_call()
        require_dense([tensor])
        self._worker.require_open()

    def _create_message_work(
        self, name: str, tensor: Tensor, gloo_work: Any, finish: Callable[[], None]
    ) -> Any:
        """Return the handle of a message. Its `wait()` waits for gloo's `Work`, and then calls `finish`."""
        description = f"{self._description}: {describe_collective(name, [tensor])}"
        return self._coalesce_if_requested(MessageWork(description, gloo_work, finish))

    def barrier(self, opts: Any = None) -> Any:
        """Start a barrier, which runs after all earlier collectives.

        The barrier ends once every rank has called this method.
        """
        options = gloo_options(c10d.BarrierOptions, opts)

        def barrier_on_host(_host_tensors: list[Tensor]) -> list[Tensor]:
            self._gloo.barrier(options).wait()
            return []

        return self._run("barrier", barrier_on_host)

    # Reductions

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        """Reduce each tensor over all ranks, in place."""
        return self._reduce_all("all_reduce", tensor_list(tensors), opts)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Any:
        """Reduce all tensors over all ranks in one call, in place."""
        return self._reduce_all("all_reduce_coalesced", list(tensors), opts)

    def _reduce_all(self, name: str, tensors: list[Tensor], opts: Any) -> Any:
        """Start reducing all tensors over all ranks, in place, and return the handle."""
        reductions = self._reductions(tensors, opts)

        def reduce_all_on_host(host_tensors: list[Tensor]) -> list[Tensor]:
            self._reduce_host_tensors(reductions, host_tensors, opts)
            return host_tensors

        return self._run(name, reduce_all_on_host, reads=tensors, writes=tensors)

    def _reductions(self, tensors: Sequence[Tensor], opts: Any) -> list[Reduction]:
        """Return the reduction steps for each tensor, by the operation in `opts`."""
        op = reduce_op(opts)
        return [reduction_for(tensor.dtype, op, self.size()) for tensor in tensors]

    def _reduce_host_tensors(
        self, reductions: list[Reduction], host_tensors: list[Tensor], opts: Any
    ) -> None:
        """Reduce host tensors over all ranks, in place."""
        gloo_tensors = []
        works = []
        for reduction, host_tensor in zip(reductions, host_tensors, strict=True):
            gloo_tensor = reduction.to_gloo(host_tensor)
            gloo_tensors.append(gloo_tensor)
            if gloo_tensor.numel():  # An empty tensor needs no communication.
                options = gloo_options(c10d.AllreduceOptions, opts, reduction.op)
                works.append(self._gloo.allreduce([gloo_tensor], options))
        _wait_for_all(works)
        for reduction, host_tensor, gloo_tensor in zip(
            reductions, host_tensors, gloo_tensors, strict=True
        ):
            reduction.write_result(host_tensor, gloo_tensor)

    def reduce(self, tensors: Any, opts: Any = None) -> Any:
        """Reduce the tensors over all ranks. Only the root rank's tensors change."""
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

        # Only the root's tensors change.
        changed = tensors if is_root else []
        return self._run(
            "reduce", reduce_on_host, reads=tensors, writes=changed, result=tensors
        )

    def reduce_scatter_single(
        self, output: Tensor, source: Tensor, opts: Any = None
    ) -> Any:
        """Reduce `source` over all ranks, and write this rank's part of the result to `output`.

        The parts are equal in size and in the order of the ranks.
        """
        return self.reduce_scatter_single_coalesced([output], [source], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: Any, inputs: Any, opts: Any = None
    ) -> Any:
        """Perform `reduce_scatter_single` for each pair of an output and an input."""
        outputs, inputs = list(outputs), list(inputs)
        for output, source in zip(outputs, inputs, strict=True):
            require_parts(source.numel(), output.numel(), self.size(), "elements")
        reductions = self._reductions(inputs, opts)

        def reduce_scatter_on_host(host_tensors: list[Tensor]) -> list[Tensor]:
            results = []
            for reduction, host_tensor, output in zip(
                reductions, host_tensors, outputs, strict=True
            ):
                result = self._reduce_and_take_own_part(
                    reduction, host_tensor, output.shape, opts
                )
                results.append(result)
            return results

        return self._run(
            "reduce_scatter", reduce_scatter_on_host, reads=inputs, writes=outputs
        )

    # The names that torch before 2.13 calls.
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _reduce_and_take_own_part(
        self, reduction: Reduction, host_tensor: Tensor, shape: torch.Size, opts: Any
    ) -> Tensor:
        """Reduce `host_tensor` over all ranks, and return this rank's part, with the shape `shape`."""
        gloo_tensor = reduction.to_gloo(host_tensor).view(-1)
        reduced_part = gloo_tensor.new_empty(gloo_tensor.numel() // self.size())
        if reduced_part.numel():
            options = gloo_options(c10d.ReduceScatterOptions, opts, reduction.op)
            self._gloo._reduce_scatter_base(reduced_part, gloo_tensor, options).wait()
        part = torch.empty(shape, dtype=host_tensor.dtype, device="cpu")
        reduction.write_result(part, reduced_part, separate_memory=True)
        return part

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Reduce `inputs[0][r]` over all ranks, and give the result to rank `r`, for each rank `r`.

        The tensors for different ranks may differ in size.
        """
        [output] = tensor_list(outputs)
        [parts_for_ranks] = inputs
        parts = list(parts_for_ranks)
        require_parts(parts[self.rank()].numel(), output.numel(), 1, "elements")
        reductions = self._reductions(parts, opts)
        have_equal_sizes = len({part.numel() for part in parts}) == 1

        def reduce_scatter_on_host(host_tensors: list[Tensor]) -> list[Tensor]:
            if have_equal_sizes:
                joined = torch.cat([part.view(-1) for part in host_tensors])
                own_part = self._reduce_and_take_own_part(
                    reductions[0], joined, output.shape, opts
                )
                return [own_part]
            # gloo scatters only equal parts, so each rank reduces all parts.
            self._reduce_host_tensors(reductions, host_tensors, opts)
            return [host_tensors[self.rank()].view(output.shape)]

        return self._run(
            "reduce_scatter", reduce_scatter_on_host, reads=parts, writes=[output]
        )

    # Data movement

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        """Copy the root rank's tensors to all ranks."""
        tensors = tensor_list(tensors)
        options = gloo_options(c10d.BroadcastOptions, opts)
        is_root = options.rootRank == self.rank()

        def broadcast_on_host(host_tensors: list[Tensor]) -> None:
            works = []
            for host_tensor in host_tensors:
                row = bytes_of(host_tensor)
                if row.numel():
                    works.append(self._gloo.broadcast([row], options))
            _wait_for_all(works)

        def send_from_root(host_tensors: list[Tensor]) -> list[Tensor]:
            broadcast_on_host(host_tensors)
            return []

        def receive_from_root(_host_tensors: list[Tensor]) -> list[Tensor]:
            results = self._empty_like(tensors)
            broadcast_on_host(results)
            return results

        if is_root:
            return self._run("broadcast", send_from_root, reads=tensors)
        return self._run("broadcast", receive_from_root, writes=tensors)

    def _empty_like(self, tensors: Iterable[Tensor]) -> list[Tensor]:
        """Return an uninitialized host tensor of the same shape and data type for each tensor."""
        return [self._worker.memory.empty_like(tensor) for tensor in tensors]

    def all_gather_single(
        self, output: Tensor, source: Tensor, opts: Any = None
    ) -> Any:
        """Gather every rank's `source` into `output`, in the order of the ranks."""
        return self.all_gather_single_coalesced([output], [source], opts)

    def all_gather_single_coalesced(
        self, outputs: Any, inputs: Any, opts: Any = None
    ) -> Any:
        """Perform `all_gather_single` for each pair of an output and an input."""
        outputs, inputs = list(outputs), list(inputs)
        for output, source in zip(outputs, inputs, strict=True):
            require_parts(output.nbytes, source.nbytes, self.size(), "bytes")
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

        The tensors of different ranks may differ in size.
        """
        return self._all_gather(outputs, [outputs[0]], inputs, opts)

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Gather `inputs[i]` of every rank `r` into `outputs[r][i]`, for each `i`.

        The tensors of different ranks may differ in size.
        """
        inputs = list(inputs)
        lengths = [len(row) for row in outputs]
        if lengths != [len(inputs)] * self.size():
            raise ValueError(
                f"the lengths of the output lists are {lengths}, expected {self.size()} lists, one for each "
                f"rank, with {len(inputs)} tensors each, one for each input"
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
        all_parts: list[Tensor] = []
        for parts, source in zip(parts_of_inputs, inputs, strict=True):
            require_parts(parts[self.rank()].nbytes, source.nbytes, 1, "bytes")
            all_parts += parts

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
            writes=all_parts,
            result=result,
        )

    def _gather_rows(self, rows: list[Tensor], own_row: Tensor, opts: Any) -> None:
        """Gather every rank's `own_row` of bytes into `rows`, whose sizes may differ."""
        have_different_sizes = len({row.numel() for row in rows}) > 1
        if have_different_sizes:
            rows[self.rank()].copy_(own_row)
            self._broadcast_each(rows, opts)
        elif own_row.numel():
            options = gloo_options(c10d.AllgatherOptions, opts)
            self._gloo.allgather([rows], [own_row], options).wait()

    def _broadcast_each(self, rows: list[Tensor], opts: Any) -> None:
        """Broadcast row `r` from rank `r`, for each rank `r`.

        This replaces gloo's `allgather`, which needs equal sizes.
        """
        works = []
        for root, row in enumerate(rows):
            options = gloo_options(c10d.BroadcastOptions, opts)
            options.rootRank = root
            if row.numel():
                works.append(self._gloo.broadcast([row], options))
        _wait_for_all(works)

    def gather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Gather every rank's `inputs[0]` into the list `outputs[0]` on the root rank.

        Ranks other than the root pass no output list.
        """
        source = tensor_list(inputs)[0]
        options = gloo_options(c10d.GatherOptions, opts)
        is_root = options.rootRank == self.rank()
        # Only the root receives the parts of all ranks.
        parts = list(outputs[0]) if is_root else []

        def gather_on_host(host_tensors: list[Tensor]) -> list[Tensor]:
            [host_source] = host_tensors
            results = self._empty_like(parts)
            rows = [[bytes_of(part) for part in results]] if is_root else []
            if source.numel():
                self._gloo.gather(rows, [bytes_of(host_source)], options).wait()
            return results

        return self._run(
            "gather", gather_on_host, reads=[source], writes=parts, result=outputs
        )

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Send the root rank's tensor `inputs[0][r]` to rank `r`, for each rank `r`.

        Ranks other than the root pass no input list.
        """
        target = tensor_list(outputs)[0]
        options = gloo_options(c10d.ScatterOptions, opts)
        is_root = options.rootRank == self.rank()
        # Only the root has a part for each rank.
        parts = list(inputs[0]) if is_root else []

        def scatter_on_host(host_parts: list[Tensor]) -> list[Tensor]:
            [result] = self._empty_like([target])
            rows = [[bytes_of(part) for part in host_parts]] if is_root else []
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
        """Send a part of `source` to each rank, and receive a part from each rank into `output`.

        The splits are the numbers of rows in the parts. Without splits, the parts are equal in size.
        """
        received_sizes = split_sizes(output, list(output_splits), self.size())
        sent_sizes = split_sizes(source, list(input_splits), self.size())
        return self._all_to_all([output], [source], received_sizes, sent_sizes, opts)

    alltoall_base = all_to_all_single

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Send `inputs[r]` to each rank `r`, and receive `outputs[r]` from each rank `r`."""
        outputs, inputs = list(outputs), list(inputs)
        received_sizes = [tensor.nbytes for tensor in outputs]
        sent_sizes = [tensor.nbytes for tensor in inputs]
        return self._all_to_all(outputs, inputs, received_sizes, sent_sizes, opts)

    def _all_to_all(
        self,
        outputs: list[Tensor],
        inputs: list[Tensor],
        received_sizes: list[int],
        sent_sizes: list[int],
        opts: Any,
    ) -> Any:
        """Exchange parts of `inputs` with all ranks, and write the received parts to `outputs`.

        `received_sizes` and `sent_sizes` are the sizes in bytes of the parts from and for
        each rank.
        """
        options = gloo_options(c10d.AllToAllOptions, opts)

        def all_to_all_on_host(host_tensors: list[Tensor]) -> list[Tensor]:
            sent_row = torch.cat([bytes_of(tensor) for tensor in host_tensors])
            received_row = torch.empty(
                sum(received_sizes), dtype=torch.uint8, device="cpu"
            )
            self._gloo.alltoall_base(
                received_row, sent_row, received_sizes, sent_sizes, options
            ).wait()
            results = self._empty_like(outputs)
            # Split by the outputs, not by the ranks: one output may hold all parts.
            pieces = torch.split(received_row, [result.nbytes for result in results])
            for result, piece in zip(results, pieces, strict=True):
                bytes_of(result).copy_(piece)
            return results

        return self._run("all_to_all", all_to_all_on_host, reads=inputs, writes=outputs)


def _do_nothing() -> None:
    """Do nothing, where a function is required."""


def _wait_for_all(works: list[Any]) -> None:
    """Wait until all operations have ended. `works` are gloo's handles of the running operations."""
    for work in works:
        work.wait()


def _hide_from_dynamo(cls: type) -> None:
    """Make torch.compile run the members of a class, and functions that they call, without compiling.

    A compiled DistributedDataParallel calls the group from C++ while Dynamo watches the thread, and Dynamo
    cannot trace a process group. This is `torch.compiler.disable`, without its import of `torch._dynamo`,
    which takes a second.
    """
    eval_frame: Any = torch._C._dynamo.eval_frame
    if not hasattr(eval_frame, "_FrameExecStrategy"):
        return  # an older torch
    skip = eval_frame._FrameAction.SKIP
    # The first action is for the member itself, and the second for the functions that it calls.
    strategy = eval_frame._FrameExecStrategy(skip, skip)
    for member in vars(cls).values():
        if isinstance(member, FunctionType):
            eval_frame.set_code_exec_strategy(member.__code__, strategy)


_hide_from_dynamo(StagedProcessGroup)
