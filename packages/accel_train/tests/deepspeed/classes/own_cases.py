"""What is asked of one vendor alone: members that only its class has, and what only its device shows."""

import os
from contextlib import contextmanager
from unittest import mock

import torch
from accel_tests.deepspeed_classes.device import member, members

#: Where the device differs from `Device`'s defaults.
DEVICES = {
    "hpu": {"last_generator": 0},
    "klxpu": {"type": "cuda"},
    "mps": {"last": 0, "last_generator": 0},
}


def own_cases(vendor):
    """The vendor's own cases, and those of every simulated device."""
    own = {
        "cpu": _cpu, "cuda": _cuda, "hpu": _hpu, "klxpu": _klxpu, "mlu": _vendor_ranges, "mps": _mps,
        "supa": _supa, "xpu": _xpu,
    }  # fmt: skip
    return {
        "range_push: under torch's profiler": _profiled,
        **(own[vendor]() if vendor in own else {}),
    }


def _profiled(acc):
    """Whether torch's profiler sees the range."""
    with torch.autograd.profiler.profile() as seen:
        acc.range_push("a step")
        acc.range_pop()
    return any(event.name == "a step" for event in seen.function_events)


def _vendor_ranges():
    """How many ranges are open at the vendor's profiler, after a push and after its pop."""
    from accel_simulated.parts import ranges

    def reached(acc):
        ranges._open_ranges.clear()
        acc.range_push("step", domain="training")
        pushed = len(ranges._open_ranges)
        acc.range_pop(domain="training")
        return [pushed, len(ranges._open_ranges)]

    return {"range_push: at the vendor's profiler": reached}


def _supa():
    return {
        **_vendor_ranges(),
        **members("communication_backend_version"),
        **_attributes("class_dict"),
    }


def _attributes(*names):
    return {name: lambda acc, name=name: _plain(getattr(acc, name)) for name in names}


def _plain(value):
    return "callable" if callable(value) else type(value).__name__


def _under(context, label, *names):
    """Members called inside a context, which the label tells."""

    def asked(name):
        def ask(acc):
            with context():
                return getattr(acc, name)()

        return ask

    return {f"{name}: {label}": asked(name) for name in names}


def _cuda():
    abilities = (
        "is_bf16_supported", "is_fp16_supported", "is_triton_supported", "prefer_triton_grouped_mm",
        "supported_dtypes",
    )  # fmt: skip

    def by_uuid(acc):
        with mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES="GPU-8f6b"):
            return acc.available_memory() == torch.cuda.mem_get_info()[0]

    return {
        **members("communication_backend_version"),
        **_attributes("class_dict"),
        "available_memory: with devices named by UUID": by_uuid,
        **_under(
            _no_device, "without a device", "is_available", "device_count", *abilities
        ),
    }


def _klxpu():
    def events(value):
        return lambda: mock.patch.dict(os.environ, XPU_EVENT_KL3_ENABLE=value)

    return {
        **members("communication_backend_version"),
        **_attributes("class_dict"),
        **_under(events("1"), "with events", "use_host_timers"),
        **_under(events("0"), "without events", "use_host_timers"),
    }


def _xpu():
    def lacking(lack):
        return lambda: _properties(torch.xpu, **{lack: False})

    emulated = ("is_bf16_supported", "supported_dtypes")
    return {
        **_under(lacking("has_bfloat16_conversions"), "bfloat16 emulated", *emulated),
        **_under(lacking("has_fp64"), "of a card without", "is_fp64_supported"),
    }


@contextmanager
def _properties(module, **values):
    """The simulated device with these properties."""
    make = module._get_device_properties

    def changed(index):
        properties = make(index)
        vars(properties).update(values)
        return properties

    with mock.patch.object(module, "_get_device_properties", changed):
        yield


@contextmanager
def _no_device():
    """A machine without devices: what torch's C part counts, and what torch.cuda keeps of it."""
    from accel_simulated import device

    with (
        mock.patch.object(device, "count", 0),
        mock.patch.object(torch.cuda, "_cached_device_count", None),
    ):
        yield


def _hpu():
    def made_anew(acc):
        """What making another one leaves in the process."""
        torch.use_deterministic_algorithms(False)
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("PT_HPU")
        }
        with mock.patch.dict(os.environ, kept, clear=True):
            type(acc)(*([acc.backend] if hasattr(acc, "backend") else []))
            return [
                *sorted(os.environ.keys() - kept.keys()),
                torch.are_deterministic_algorithms_enabled(),
            ]

    own = _attributes("apply_hpu_workarounds", "class_dict")
    return {**own, "apply_hpu_workarounds: by making one": made_anew}


def _mps():
    limit = "set_per_process_memory_fraction"
    return {**_attributes("seed"), limit: member(limit, 0.5)}


def _cpu():
    def without_size(acc):
        with mock.patch.dict(os.environ):
            del os.environ["LOCAL_SIZE"]
            return acc.device_count() >= 1

    return {
        **_attributes("get_rss", "reset_rss"),
        "device_count: without LOCAL_SIZE": without_size,
    }
