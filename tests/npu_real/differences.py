"""Where the npu accelerator differs on purpose from DeepSpeed 0.19.8's, each with its reason.

`python differences.py` prints the table for the README. The test asks both, and accepts nothing else.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["DIFFERENCES", "Difference", "table"]


class Difference(NamedTuple):
    """How the two answers begin, and why ours is another one."""

    theirs: str
    ours: str
    why: str


_WARNS = "torch_npu deprecated the old name and warns at every call; ours is the new function under that name"
_TYPE = (
    "torch_npu calls the old tensor types no longer recommended; ours makes the same tensor by torch.tensor"
)
_NO_GRAPH = "`create_graph()` may be None on a device without graphs; the work then simply runs"
_RANGES = "DeepSpeed drops ranges on npu; ours go to mstx, domain included"

DIFFERENCES: dict[str, Difference] = {
    "default_generator: before the start": Difference(
        "IndexError", "generator npu:1", "torch_npu fills the tuple when it initialises; ours does that first"
    ),
    "total_memory: of a device not selected yet": Difference(
        "RuntimeError: initDeviceProperty",
        "int 1073741824",
        "torch_npu asks CANN without selecting the device",
    ),
    "current_stream: of a device not selected yet": Difference(
        "RuntimeError: Uninitialized default NPU stream",
        "stream npu:1",
        "the same: the device is selected first",
    ),
    "reset_max_memory_allocated": Difference(
        "NoneType None with DeprecationWarning", "NoneType None", _WARNS
    ),
    "memory_cached": Difference("int 0 with DeprecationWarning", "int 0", _WARNS),
    "max_memory_cached": Difference("int 0 with DeprecationWarning", "int 0", _WARNS),
    "reset_max_memory_cached": Difference("NoneType None with DeprecationWarning", "NoneType None", _WARNS),
    "export_envs": Difference(
        "list ['str ASCEND'", "list ['str ASCEND'", "torch_npu reads four families more"
    ),
    "available_memory: beside another user": Difference(
        "bool False",
        "bool True",
        "cached blocks and other processes count as used: `mem_get_info`, not a subtraction",
    ),
    "set_device: out of range": Difference(
        "RuntimeError: ExchangeDevice",
        "ValueError: npu: device index 7",
        "one error with the range on every backend",
    ),
    **{
        f"{name}Tensor: the attribute": Difference(f"class torch.npu.{name}Tensor", "partial", _TYPE)
        for name in ("BFloat16", "Byte", "Double", "Float", "Half", "Int", "Long")
    },
    "pin_empty: on the device": Difference("ValueError", "ValueError", "the same error in other words"),
    "unregister_host_memory: unknown": Difference(
        "RuntimeError", "RuntimeError: npu", "names backend and address"
    ),
    "capture_to_graph: without a graph": Difference("AttributeError", "str ran", _NO_GRAPH),
    "replay_graph: without a graph": Difference("AttributeError", "NoneType None", _NO_GRAPH),
    "range_push": Difference("int 0", "int 2", _RANGES),
    "range_pop": Difference("int 0", "int 2", _RANGES),
    "supports_nvtx_domain": Difference("bool False", "bool True", _RANGES),
    "set_compile_backend: unknown": Difference(
        "ValueError", "ValueError", "the same error, sorted and in other words"
    ),
    "set_visible_devices_envs: in any order": Difference(
        "str 3,1", "str 1,3", "CANN takes ascending ids only, and torch_npu counts no device otherwise"
    ),
    "set_visible_devices_envs: one twice": Difference("str 1,1", "SettingError", "CANN would see no device"),
    "get_op_builder": Difference(
        "class deepspeed.ops.op_builder.npu",
        "class accel_core.ops.portable",
        "DeepSpeed's builder cannot be made without ASCEND_HOME_PATH, so the portable one is used",
    ),
    "create_op_builder: unknown": Difference(
        "KeyError: 'ASCEND_HOME_PATH'",
        "str NotImplementedBuilder",
        "nobody has it: that is no error until it is loaded",
    ),
}


def table() -> str:
    """The differences as a table of the README."""
    rows = [f"| `{name}` | {d.theirs} | {d.ours} | {d.why} |" for name, d in DIFFERENCES.items()]
    return "\n".join(
        ["| member: case | DeepSpeed's begins | ours begins | why |", "|---|---|---|---|", *rows]
    )


if __name__ == "__main__":
    print(table())
