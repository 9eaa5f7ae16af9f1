"""`StagedProcessGroup`: torch.distributed's collectives for a device that has none of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch._C import _distributed_c10d as c10d

from accel_train.staged.base import Base, Together
from accel_train.staged.calls import (
    listed,
    options,
    require_dense,
    require_parts,
    split_sizes,
)
from accel_train.staged.host import bytes_of
from accel_train.staged.operation import Operation
from accel_train.staged.reducing import Reducing

__all__ = ["StagedProcessGroup"]


class Moving(Base):
    """`broadcast`, `all_gather`, `gather`, `scatter` and `all_to_all`."""

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        """Copy the root's tensor to all ranks."""
        tensors = listed(tensors)
        require_dense(tensors)
        given = options(c10d.BroadcastOptions, opts)
        root = given.rootRank == self.rank()

        def start(sources: list[Tensor], targets: list[Tensor]) -> Sequence[Any]:
            rows = [bytes_of(host) for host in (sources if root else targets)]
            return [self._gloo.broadcast([row], given) for row in rows if row.numel()]

        if root:
            return self._run(
                Operation("broadcast", start, reads=tensors, result=tensors), opts
            )
        return self._run(Operation("broadcast", start, writes=tensors), opts)

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
        require_dense(outputs + inputs)
        for output, source in zip(outputs, inputs, strict=True):
            require_parts(output.nbytes, source.nbytes, self.size())
        given = options(c10d.AllgatherOptions, opts)

        def start(sources: list[Tensor], targets: list[Tensor]) -> Sequence[Any]:
            works = []
            for source, target in zip(sources, targets, strict=True):
                if source.numel():
                    works.append(
                        self._gloo._allgather_base(
                            bytes_of(target), bytes_of(source), given
                        )
                    )
            return works

        return self._run(
            Operation("all_gather", start, reads=inputs, writes=outputs), opts
        )

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Gather every rank's `inputs[0]` into the list `outputs[0]`; sizes may differ between ranks."""
        parts, source = list(outputs[0]), listed(inputs)[0]
        require_dense([*parts, source])
        given = options(c10d.AllgatherOptions, opts)
        if len({part.nbytes for part in parts}) > 1:
            return self._allgather_unequal(outputs, parts, source, opts)
        require_parts(sum(part.nbytes for part in parts), source.nbytes, self.size())

        def start(sources: list[Tensor], targets: list[Tensor]) -> Sequence[Any]:
            row = bytes_of(sources[0])
            return (
                [self._gloo._allgather_base(targets[0], row, given)]
                if row.numel()
                else []
            )

        operation = Operation(
            "all_gather",
            start,
            reads=[source],
            writes=parts,
            packed=True,
            result=outputs,
        )
        return self._run(operation, opts)

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Do `allgather` for each list and its input."""
        works = [
            self.allgather([list(o)], [i], opts)
            for o, i in zip(outputs, inputs, strict=True)
        ]
        return Together(works)

    def _allgather_unequal(
        self, outputs: Any, parts: list[Tensor], source: Tensor, opts: Any
    ) -> Any:
        """Gloo needs equal parts: every rank broadcasts its own."""
        require_parts(parts[self.rank()].nbytes, source.nbytes, 1)

        def start(sources: list[Tensor], targets: list[Tensor]) -> Sequence[Any]:
            bytes_of(targets[self.rank()]).copy_(bytes_of(sources[0]))
            works = []
            for root, target in enumerate(targets):
                given = options(c10d.BroadcastOptions, opts)
                given.rootRank = root
                if target.numel():
                    works.append(self._gloo.broadcast([bytes_of(target)], given))
            return works

        return self._run(
            Operation(
                "all_gather", start, reads=[source], writes=parts, result=outputs
            ),
            opts,
        )

    def gather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Gather every rank's `inputs[0]` into the root's list `outputs[0]`; other ranks pass no list."""
        source = listed(inputs)[0]
        given = options(c10d.GatherOptions, opts)
        parts = list(outputs[0]) if given.rootRank == self.rank() else []
        require_dense([*parts, source])

        def start(sources: list[Tensor], targets: list[Tensor]) -> Sequence[Any]:
            rows = [[bytes_of(target) for target in targets]] if parts else []
            return (
                [self._gloo.gather(rows, [bytes_of(sources[0])], given)]
                if source.numel()
                else []
            )

        return self._run(
            Operation("gather", start, reads=[source], writes=parts, result=outputs),
            opts,
        )

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Send each tensor of the root's list `inputs[0]` to one rank; other ranks pass no list."""
        target = listed(outputs)[0]
        given = options(c10d.ScatterOptions, opts)
        parts = list(inputs[0]) if given.rootRank == self.rank() else []
        require_dense([*parts, target])

        def start(sources: list[Tensor], targets: list[Tensor]) -> Sequence[Any]:
            rows = [[bytes_of(source) for source in sources]] if parts else []
            return (
                [self._gloo.scatter([bytes_of(targets[0])], rows, given)]
                if target.numel()
                else []
            )

        return self._run(
            Operation("scatter", start, reads=parts, writes=[target]), opts
        )

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
        require_dense([output, source])
        received = split_sizes(output, list(output_splits), self.size())
        sent = split_sizes(source, list(input_splits), self.size())
        return self._all_to_all([output], [source], received, sent, opts)

    alltoall_base = all_to_all_single

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Send `inputs[r]` to rank `r`, and receive into `outputs[r]` what rank `r` sends to this rank."""
        outputs, inputs = list(outputs), list(inputs)
        require_dense(outputs + inputs)
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

        def start(sources: list[Tensor], targets: list[Tensor]) -> Sequence[Any]:
            return [
                self._gloo.alltoall_base(targets[0], sources[0], received, sent, given)
            ]

        operation = Operation(
            "all_to_all", start, reads=inputs, writes=outputs, packed=True
        )
        return self._run(operation, opts)


class StagedProcessGroup(Reducing, Moving):
    """A process group whose tensors travel through host memory, over gloo.

    It accepts tensors of the device and of the CPU, of every data type, contiguous or not, empty or not.
    Results equal those of gloo for the same tensors on the CPU. Every collective returns a `Work`. Copies run
    in two threads of the group, in parallel to the program and to each other. `wait()` of a failed collective
    raises `CommunicationError`, a `RuntimeError`.

    Members have the names and the arguments that torch.distributed calls them with.
    """
