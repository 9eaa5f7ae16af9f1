"""The staged collectives that compute: reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch._C import _distributed_c10d as c10d

from accel_train.staged.arithmetic import reduction
from accel_train.staged.base import Base
from accel_train.staged.calls import (
    listed,
    options,
    reduce_op,
    require_dense,
    require_parts,
)
from accel_train.staged.operation import Operation

__all__ = ["Reducing"]


class Reducing(Base):
    """`all_reduce`, `reduce` and `reduce_scatter`."""

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        """Reduce each tensor over all ranks, in place."""
        tensors = listed(tensors)
        return self._reduce("all_reduce", tensors, opts, self._send_all)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Any:
        """Reduce all tensors over all ranks, in place; tensors of the same data type are sent together."""
        one_type = len({t.dtype for t in tensors}) == 1
        return self._reduce(
            "all_reduce_coalesced", list(tensors), opts, self._send_all, packed=one_type
        )

    def _send_all(self, wire: Tensor, op: Any, opts: Any) -> Any:
        return self._gloo.allreduce([wire], options(c10d.AllreduceOptions, opts, op))

    def reduce(self, tensors: Any, opts: Any = None) -> Any:
        """Reduce over all ranks; only the root's tensor changes."""
        tensors = listed(tensors)
        at_root = options(c10d.ReduceOptions, opts).rootRank == self.rank()

        def send(wire: Tensor, op: Any, opts: Any) -> Any:
            # gloo writes into what the others give as well.
            return self._gloo.reduce(
                [wire if at_root else wire.clone()],
                options(c10d.ReduceOptions, opts, op),
            )

        return self._reduce("reduce", tensors, opts, send, kept=at_root)

    def _reduce(
        self,
        name: str,
        tensors: list[Tensor],
        opts: Any,
        send: Callable[[Tensor, Any, Any], Any],
        *,
        packed: bool = False,
        kept: bool = True,
    ) -> Any:
        require_dense(tensors)
        dtypes = [tensors[0].dtype] if packed else [t.dtype for t in tensors]
        ways = [reduction(dtype, reduce_op(opts), self.size()) for dtype in dtypes]
        typed: list[Tensor] = []
        wires: list[Tensor] = []

        def start(sources: list[Tensor], _: list[Tensor]) -> Sequence[Any]:
            typed[:] = [host.view(dtypes[0]) if packed else host for host in sources]
            wires[:] = [way.send(host) for way, host in zip(ways, typed, strict=True)]
            return [
                send(wire, way.op, opts)
                for way, wire in zip(ways, wires, strict=True)
                if wire.numel()
            ]

        def finish(_: list[Tensor]) -> None:
            for way, host, wire in zip(ways, typed, wires, strict=True):
                way.end(host, wire)

        if not kept:
            return self._run(
                Operation(name, start, reads=tensors, result=tensors), opts
            )
        return self._run(
            Operation(name, start, both=tensors, finish=finish, packed=packed), opts
        )

    def reduce_scatter_single(
        self, output: Tensor, source: Tensor, opts: Any = None
    ) -> Any:
        """Reduce `source` over all ranks; each rank keeps its part, in the order of ranks."""
        return self._reduce_scatter([output], [source], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: Any, inputs: Any, opts: Any = None
    ) -> Any:
        """Do several `reduce_scatter_single` at once."""
        return self._reduce_scatter(list(outputs), list(inputs), opts)

    # What torch before 2.13 calls them.
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _reduce_scatter(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any
    ) -> Any:
        require_dense(outputs + inputs)
        for output, source in zip(outputs, inputs, strict=True):
            require_parts(source.numel(), output.numel(), self.size())
        ways = [reduction(t.dtype, reduce_op(opts), self.size()) for t in outputs]
        wires: list[Tensor] = []

        def start(sources: list[Tensor], targets: list[Tensor]) -> Sequence[Any]:
            works = []
            for way, source, target in zip(ways, sources, targets, strict=True):
                sent = way.send(source).view(-1)
                # Where gloo cannot write the type: beside, in the type that it reduces.
                made = (
                    way.send(target).view(-1)
                    if way.receive is None
                    else sent.new_empty(target.numel())
                )
                wires.append(made)
                if made.numel():
                    given = options(c10d.ReduceScatterOptions, opts, way.op)
                    works.append(self._gloo._reduce_scatter_base(made, sent, given))
            return works

        def finish(targets: list[Tensor]) -> None:
            for way, target, wire in zip(ways, targets, wires, strict=True):
                way.end(target, wire)

        operation = Operation(
            "reduce_scatter", start, reads=inputs, writes=outputs, finish=finish
        )
        return self._run(operation, opts)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Reduce `inputs[0][r]` over all ranks, for each rank `r`, and leave the result on rank `r`.

        The tensors for different `r` may differ in size.
        """
        output, parts = listed(outputs)[0], list(inputs[0])
        require_dense([output, *parts])
        ways = [reduction(part.dtype, reduce_op(opts), self.size()) for part in parts]
        wires: list[Tensor] = []

        if (
            len({part.numel() for part in parts}) == 1
            and output.numel() == parts[0].numel()
        ):
            return self._reduce_scatter_equal(output, parts, opts)

        def start(sources: list[Tensor], _: list[Tensor]) -> Sequence[Any]:
            # gloo needs equal parts: each is reduced by itself, on copies, since the inputs stay.
            wires[:] = [
                way.send(s.clone()) for way, s in zip(ways, sources, strict=True)
            ]
            return [
                self._send_all(wire, way.op, opts)
                for way, wire in zip(ways, wires, strict=True)
                if wire.numel()
            ]

        def finish(targets: list[Tensor]) -> None:
            ways[self.rank()].end(targets[0], wires[self.rank()], beside=True)

        operation = Operation(
            "reduce_scatter", start, reads=parts, writes=[output], finish=finish
        )
        return self._run(operation, opts)

    def _reduce_scatter_equal(
        self, output: Tensor, parts: list[Tensor], opts: Any
    ) -> Any:
        way = reduction(output.dtype, reduce_op(opts), self.size())
        given = options(c10d.ReduceScatterOptions, opts, way.op)
        wires: list[Tensor] = []

        def start(sources: list[Tensor], _: list[Tensor]) -> Sequence[Any]:
            sent = way.send(sources[0].view(output.dtype)).view(-1)
            wires.append(sent.new_empty(sent.numel() // self.size()))
            return (
                [self._gloo._reduce_scatter_base(wires[0], sent, given)]
                if sent.numel()
                else []
            )

        def finish(targets: list[Tensor]) -> None:
            way.end(targets[0].view(output.dtype), wires[0], beside=True)

        operation = Operation(
            "reduce_scatter",
            start,
            reads=parts,
            writes=[output],
            finish=finish,
            packed=True,
        )
        return self._run(operation, opts)
