"""A simulated `torch.hpu`: answers without a device, with the names and parameters of `surfaces/hpu.json`."""

from __future__ import annotations

import types

import torch

GIB = 2**30


class Simulated(types.ModuleType):
    """The module in eager mode; `lazy=True` adds the names that the bridge has in lazy mode alone."""

    def __init__(self, *, lazy: bool = False, devices: int = 8) -> None:
        super().__init__("habana_frameworks.torch.hpu")
        self.calls: list[tuple[object, ...]] = []
        self.random = types.ModuleType("habana_frameworks.torch.hpu.random")
        generator = torch.Generator()
        self.random.default_generators = [generator]

        def is_available() -> bool:
            return devices > 0

        def device_count() -> int:
            return devices

        def current_device() -> int:
            return 0

        def init() -> None:
            self.calls.append(("init",))

        def is_initialized() -> bool:
            return ("init",) in self.calls

        def synchronize() -> None:
            self.calls.append(("synchronize",))

        def get_device_name(device=None) -> str:
            return "GAUDI2"

        def get_device_properties(device=None) -> str:
            return "(sramBaseAddress=0x1000, dramSize=102005473280)"

        def get_rng_state(device="hpu"):
            if device not in (0, "hpu"):
                raise RuntimeError("hpu get_rng_state supports only device 0")
            return generator.get_state()

        def set_rng_state(new_state, device="hpu") -> None:
            if device not in (0, "hpu"):
                raise RuntimeError("hpu set_rng_state supports only device 0")
            generator.set_state(new_state)

        def manual_seed(seed):
            return generator.manual_seed(seed)

        def manual_seed_all(seed) -> None:
            generator.manual_seed(seed)

        def initial_seed() -> int:
            return generator.initial_seed()

        def memory_stats(device=None) -> dict[str, int]:
            return {
                "Limit": 96 * GIB, "InUse": 2 * GIB, "MaxInUse": 5 * GIB, "NumAllocs": 7, "NumFrees": 3,
                "ActiveAllocs": 4, "MaxAllocSize": GIB, "TotalSystemAllocs": 34, "TotalSystemFrees": 2,
                "TotalActiveAllocs": 32,
            }  # fmt: skip

        def memory_allocated(device=None) -> int:
            return memory_stats(device)["InUse"]

        def max_memory_allocated(device=None) -> int:
            return memory_stats(device)["MaxInUse"]

        def memory_reserved(device=None) -> int:
            return memory_stats(device)["Limit"]

        def max_memory_reserved(device=None) -> int:
            return memory_stats(device)["Limit"]

        def reset_peak_memory_stats(device=None) -> None:
            self.calls.append(("reset_peak_memory_stats", device))

        def mem_get_info(device=None) -> tuple[int, int]:
            stats = memory_stats(device)
            return stats["Limit"] - stats["InUse"], stats["Limit"]

        def is_bf16_supported() -> bool:
            return is_available()

        class HPUGraph:
            def replay(graph, asynchronous=False) -> None:
                self.calls.append(("replay",))

        class graph:
            def __init__(context, hpu_graph, stream=None, dry_run=False) -> None:
                self.calls.append(("graph", stream))

            def __enter__(context) -> None: ...

            def __exit__(context, *error) -> None: ...

        own = {k: v for k, v in locals().items() if callable(v) and k not in ("self", "HPUGraph", "graph")}
        vars(self).update({k: v for k, v in own.items() if not k.startswith("__")})
        if lazy:
            self.HPUGraph, self.graph = HPUGraph, graph
