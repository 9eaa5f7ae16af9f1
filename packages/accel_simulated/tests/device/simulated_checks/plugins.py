"""A vendor's real plugin: what is known of its device, and where it answers otherwise than most devices."""

import sys

import accel_core
from accel_core import UnsupportedError
from simulated_checks.known import KNOWN

_NO_FLOAT64 = (False, "the device has no float64")
_ONE_QUEUE = (
    True,
    "one queue: nothing waits for another stream, and the host's clock tells as much as an event",
)
#: What a plugin answers where the check of all devices does not hold, each with its reason.
DIFFERENCES = {
    "npu": {
        "supports_nvtx_domain": (True, "mstx keeps domains apart"),
        "is_fp64_supported": _NO_FLOAT64,
    },
    "hpu": {
        "resolves_data_dependency": (True, "Gaudi's compiler orders dependent work"),
        "handles_memory_backpressure": (True, "an allocation waits for memory that running work gives back"),
        "set_per_process_memory_fraction": (UnsupportedError, "the bridge has no such function"),
    },
    "sdaa": {
        "set_per_process_memory_fraction": (UnsupportedError, "nobody was seen to use one of torch_sdaa's"),
        "get_compile_backend": (
            "inductor", "TecoPyTorch registers its compiler in a package that is not simulated",
        ),
    },
    "supa": {"is_fp64_supported": _NO_FLOAT64},
    "klxpu": {"use_host_timers": (True, "its events measure nothing unless a variable is set")},
    "mps": {
        "is_fp64_supported": _NO_FLOAT64,
        "supports_graphs": (False, "Metal has no graphs: the work simply runs, once"),
        **dict.fromkeys(
            ("is_synchronized_device", "use_host_timers", "resolves_data_dependency",
             "handles_memory_backpressure"),
            _ONE_QUEUE,
        ),
    },
}  # fmt: skip


def _given(a, member):
    """What it answers, or `UnsupportedError` where it refuses."""
    value = getattr(a, member)
    try:
        return value(*([0.5] if "fraction" in member else [])) if callable(value) else value
    except UnsupportedError:
        return UnsupportedError


def of_plugin(pin):
    """By member the problem, and where the plugin came from."""
    accelerator = accel_core.accelerator(pin)
    provenance = accelerator.backend.provenance
    usual, differences = KNOWN.run(accelerator), DIFFERENCES.get(pin, {})
    own = {}
    for member, (expected, _) in differences.items():
        given = _given(accelerator, member)
        own[member] = "" if (type(given), given) == (type(expected), expected) else f"gave {given!r}"
        if not usual[member]:
            own[member] = f"does as all devices do: take it out of DIFFERENCES[{pin!r}]"
    return {
        "distribution": [provenance.distribution, provenance.version],
        "file": sys.modules[type(accelerator).__module__].__file__,
        "problems": {**usual, **own},
    }
