"""Members that are said to do what a function of `torch.accelerator` does: both are asked, on one device."""

import json
from pathlib import Path

import torch

#: What the page says.
FACTS = Path(__file__).parents[5] / "tools" / "torch_accelerator.json"
#: Members whose effect the kit's checks see on torch's own tensors, streams and counters.
BY_THE_KIT = (
    "set_device", "device_guard", "set_stream", "create_graph", "capture_to_graph", "replay_graph",
    "reset_peak_memory_stats",
)  # fmt: skip
#: Members that are asked without a device; of all others the answer for device 0 is compared.
WITHOUT_INDEX = (
    "current_device", "device", "device_count", "empty_cache", "empty_host_cache", "initial_seed",
    "is_available", "synchronize",
)  # fmt: skip


def _accumulated(a, t):
    def left(reset):
        torch.empty(1 << 20, dtype=torch.uint8, device=a.backend.device_type)
        reset()
        return t.memory_stats().get("allocated_bytes.all.allocated")

    return left(a.reset_accumulated_memory_stats) == left(t.reset_accumulated_memory_stats)


def _capability(a, t):
    ours = a.get_device_capability(0)
    try:
        return bool(ours == t.get_device_capability(0))
    except RuntimeError:  # a device that tells torch nothing: then each type is tried
        return torch.float32 in ours["supported_dtypes"]


def _theirs(a, t, name):
    """torch's function; before torch 2.14, which brings `random`, the generator's method."""
    module, _, function = name.rpartition(".")
    if not module:
        return getattr(t, name)
    if found := getattr(t, module, None):
        return getattr(found, function)
    method = {"get_rng_state": "get_state", "initial_seed": "initial_seed"}[function]
    return lambda index=0: getattr(a.default_generator(index), method)()


#: What is not equal by `==`.
OTHERWISE = {
    "get_device_capability": _capability,
    "memory_stats": lambda a, t: t.memory_stats(0).items() <= a.memory_stats(0).items(),
    "reset_accumulated_memory_stats": _accumulated,
}


def _same(a, t, name, theirs):
    if name in OTHERWISE:
        return OTHERWISE[name](a, t)
    index = () if name in WITHOUT_INDEX else (0,)
    ours, said = getattr(a, name)(*index), _theirs(a, t, theirs)(*index)
    return torch.equal(ours, said) if isinstance(ours, torch.Tensor) else bool(ours == said)


def problems(accelerator):
    """By the member, beside torch's name for it: an empty string where both do the same."""
    said = json.loads(FACTS.read_text(encoding="utf-8"))["members"]
    found = {}
    for name in said.keys() - set(BY_THE_KIT):
        try:
            found[name] = "" if _same(accelerator, torch.accelerator, name, said[name]) else "does otherwise"
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    return {f"{name} as torch.accelerator.{said[name]}": problem for name, problem in found.items()}
