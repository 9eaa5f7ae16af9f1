"""A vendor's real plugin: what is known of its device, and where it answers otherwise than most devices."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import accel_core
from accel_core import UnsupportedError
from accel_simulated import VENDORS
from simulated_checks import Checks
from simulated_checks.known import KNOWN


class Differences(Checks):
    """What a plugin answers where the check of all devices does not hold, each with its reason."""

    def __init__(self) -> None:
        super().__init__()
        self.reasons: dict[str, str] = {}

    def expect(self, member: str, reason: str, call: Callable[[Any], Any]) -> None:
        """`call` must hold, and the check of all devices must not."""
        self[member], self.reasons[member] = call, reason


def refuses(call: Callable[[], Any], error: type[Exception] = UnsupportedError) -> bool:
    try:
        call()
    except error:
        return True
    return False


def limit(a: Any) -> bool:
    return refuses(lambda: a.set_per_process_memory_fraction(0.5))


DIFFERENCES = {name: Differences() for name in VENDORS}

DIFFERENCES["npu"].expect(
    "supports_nvtx_domain", "mstx keeps domains apart", lambda a: a.supports_nvtx_domain is True
)

_hpu = DIFFERENCES["hpu"].expect
_hpu(
    "resolves_data_dependency",
    "Gaudi's compiler orders dependent work",
    lambda a: a.resolves_data_dependency() is True,
)
_hpu(
    "handles_memory_backpressure",
    "an allocation waits for memory that running work gives back",
    lambda a: a.handles_memory_backpressure() is True,
)
_hpu("set_per_process_memory_fraction", "the bridge has no such function", limit)

DIFFERENCES["sdaa"].expect(
    "set_per_process_memory_fraction", "nobody was seen to use one of torch_sdaa's", limit
)

DIFFERENCES["sdaa"].expect(
    "get_compile_backend",
    "TecoPyTorch registers its compiler in a package that is not simulated: torch's serves",
    lambda a: a.get_compile_backend() == "inductor",
)

_NO_FLOAT64 = "the device has no float64"
for _name in ("supa", "mps", "npu"):
    DIFFERENCES[_name].expect("is_fp64_supported", _NO_FLOAT64, lambda a: a.is_fp64_supported() is False)

DIFFERENCES["klxpu"].expect(
    "use_host_timers",
    "its events measure nothing unless a variable is set",
    lambda a: a.use_host_timers() is True,
)

_mps = DIFFERENCES["mps"].expect
for _name in (
    "is_synchronized_device", "use_host_timers", "resolves_data_dependency", "handles_memory_backpressure",
):  # fmt: skip
    _mps(
        _name,
        "one queue: nothing waits for another stream, and the host's clock tells as much as an event",
        lambda a, name=_name: getattr(a, name)() is True,
    )
_mps(
    "supports_graphs",
    "Metal has no graphs: the work simply runs, once",
    lambda a: a.supports_graphs() is False,
)


def of_plugin(pin: str) -> dict[str, Any]:
    """By member the problem, where the plugin came from, and which answers are its own."""
    accelerator = accel_core.accelerator(pin)
    provenance = accelerator.backend.provenance
    usual = KNOWN.run(accelerator)
    own, reasons = DIFFERENCES[pin].run(accelerator), DIFFERENCES[pin].reasons
    unneeded = {
        member: f"does as all devices do: take it out of DIFFERENCES[{pin!r}]"
        for member in own
        if not usual[member]
    }
    return {
        "distribution": [provenance.distribution, provenance.version],
        "file": sys.modules[type(accelerator).__module__].__file__,
        "problems": {**usual, **own, **unneeded},
        "differences": reasons,
    }
