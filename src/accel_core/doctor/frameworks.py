"""What other frameworks would choose here, by their own rules and without importing them.

Each rule was read in the file and the release that stand with it; of the first four the tests run the real
function beside it. All of them take the first of a list that answers; they differ in the list, in what counts
as an answer (a package that imports, or a device), and in what an error means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

__all__ = ["FRAMEWORKS", "Answer", "Framework", "Here"]


class Here(NamedTuple):
    """What the rules ask about, as it is on this machine."""

    #: Devices of torch's that are usable, by torch's name: `"cuda"`, `"npu"`.
    available: frozenset[str] = frozenset()
    #: Vendors' modules that are installed and can be imported.
    importable: frozenset[str] = frozenset()
    #: Modules that are installed and whose import fails with anything but `ImportError`, with the error.
    failing: Mapping[str, str] = {}
    environ: Mapping[str, str] = {}
    #: Makers' hardware on the bus, as `machine.vendors` labels it: `"NVIDIA GPU"`.
    hardware: frozenset[str] = frozenset()
    #: Names of the entry points of the frameworks' own groups of plugins.
    plugins: Mapping[str, tuple[str, ...]] = {}
    #: The framework's own version.
    version: str = ""
    darwin: bool = False


class Answer(NamedTuple):
    """What a framework comes to."""

    #: As it names the device; empty where it fails.
    device: str = ""
    #: What fails, as a clause.
    fails: str = ""


class Framework(NamedTuple):
    """One framework and its rule."""

    name: str
    #: The distribution that must be installed.
    distribution: str
    #: Release, file and function that the rule was read in.
    source: str
    choose: Callable[[Here], Answer]
    #: What makes it choose ours, which stands for `{}`.
    to_ours: str
    #: What makes it choose the CPU; empty where that is nothing else.
    to_cpu: str = ""
    #: What makes it choose ours where it would choose the device that is the key.
    from_theirs: Mapping[str, str] = {}

    def step(self, ours: str, theirs: str) -> str:
        """What makes it choose `ours` in the place of `theirs`."""
        if theirs in self.from_theirs:
            return self.from_theirs[theirs].format(ours)
        return self.to_cpu if ours == "cpu" and self.to_cpu else self.to_ours.format(ours.partition(".")[0])


def _first(here: Here, order: Iterable[tuple[str, str]]) -> Answer | None:
    """The first device that is available, of pairs of a device and the module that is imported to ask it."""
    for device, module in order:
        if module in here.failing:
            return Answer(fails=f"import {module} fails in it: {here.failing[module]}")
        if device in here.available and (not module or module in here.importable):
            return Answer(device)
    return None


# --- DeepSpeed -----------------------------------------------------------------------------------------

_DEEPSPEEDS = ("cuda", "cpu", "xpu", "npu", "mps", "hpu", "mlu", "sdaa", "supa", "klxpu")
#: What it imports for a name that is pinned; there is no such check for cuda and cpu.
_IMPORTS = {
    "npu": "torch_npu", "sdaa": "torch_sdaa", "hpu": "habana_frameworks.torch", "mlu": "torch_mlu",
    "supa": "torch_supa", "klxpu": "torch_xmlir",
}  # fmt: skip


def _deepspeed(here: Here) -> Answer:
    """A package that imports is enough for most; an error other than `ImportError` leaves it."""
    pin = here.environ.get("DS_ACCELERATOR")
    if pin is not None:
        return _pinned(pin, here)
    for name in ("xpu", "npu", "sdaa", "mps", "hpu", "mlu", "supa", "klxpu"):
        module = _IMPORTS.get(name, "")
        if module in here.failing:
            return Answer(fails=f"import {module} fails in it: {here.failing[module]}")
        asked = name in ("xpu", "mps", "supa")  # the others are believed without a device
        if (not module or module in here.importable) and (name in here.available or not asked):
            return Answer(name)
    return Answer("cuda" if "cuda" in here.available else "cpu")


def _pinned(pin: str, here: Here) -> Answer:
    if pin not in _DEEPSPEEDS:
        known = ", ".join(_DEEPSPEEDS)
        return Answer(fails=f"it refuses DS_ACCELERATOR={pin!r}, expected exactly one of {known}")
    module = _IMPORTS.get(pin, "")
    missing = (module and module not in here.importable) or (
        pin in ("xpu", "mps") and pin not in here.available
    )
    if missing:
        return Answer(fails=f"it refuses DS_ACCELERATOR={pin!r}: {module or pin} is not to be had")
    return Answer(pin)


# --- Hugging Face --------------------------------------------------------------------------------------


def _accelerate(here: Here) -> Answer:
    """Only the import of torch_npu is guarded."""
    if device := here.environ.get("ACCELERATE_TORCH_DEVICE"):
        return Answer(device.partition(":")[0])
    if _is_true(here.environ.get("ACCELERATE_USE_CPU", "")):
        return Answer("cpu")
    order = [
        ("mps", ""), ("mlu", "torch_mlu"), ("sdaa", "torch_sdaa"), ("musa", "torch_musa"),
        ("npu", "torch_npu"), ("hpu", "habana_frameworks.torch"), ("cuda", ""), ("xpu", ""),
    ]  # fmt: skip
    guarded = here._replace(failing={m: why for m, why in here.failing.items() if m != "torch_npu"})
    if "LOCAL_RANK" in here.environ:  # in a launcher's rank it does not ask for Apple's
        order = order[1:]
    return _first(guarded, order) or Answer("cpu")


def _is_true(text: str) -> bool:
    """accelerate/utils/environment.py, `str_to_bool` (1.15.0)."""
    return text.lower() in ("y", "yes", "t", "true", "on", "1")


def _trainer(here: Here) -> Answer:
    """Accelerate's state is made first, so that its errors are the Trainer's; then a list of its own."""
    state = _accelerate(here)
    if state.fails or "LOCAL_RANK" in here.environ:
        return state
    order = [
        ("mps", ""), ("xpu", ""), ("mlu", "torch_mlu"), ("musa", "torch_musa"), ("npu", "torch_npu"),
        ("hpu", "habana_frameworks.torch"), ("cuda", ""),
    ]  # fmt: skip
    last = here.environ.get("ACCELERATE_TORCH_DEVICE", "cpu").partition(":")[0]
    return _first(here, order) or Answer(last)


# --- Lightning -----------------------------------------------------------------------------------------


def _lightning(here: Here) -> Answer:
    if "torch_xla" in here.importable and "xla" in here.available:
        return Answer("tpu")
    if "mps" in here.available and here.environ.get("DISABLE_MPS", "0") != "1":
        return Answer("mps")
    return Answer("cuda" if "cuda" in here.available else "cpu")


# --- Servers and Ray -----------------------------------------------------------------------------------

#: Devices by the name of the platform plugin: vllm-ascend and vllm-gaudi, setup.py.
_PLATFORMS = {"ascend": "npu", "hpu": "hpu"}


def _only(names: tuple[str, ...], variable: str) -> Answer:
    if len(names) > 1:
        listed = ", ".join(names)
        return Answer(fails=f"it takes one platform plugin, and {listed} are installed ({variable} selects)")
    return Answer(_PLATFORMS.get(names[0], names[0]))


def _vllm(here: Here) -> Answer:
    """Plugins before what is built in, of which all that fit are counted; NVML ignores visible devices."""
    names = here.plugins.get("vllm.platform_plugins", ())
    wanted = here.environ.get("VLLM_PLUGINS")
    if wanted is not None:
        names = tuple(name for name in names if name in [part.strip() for part in wanted.split(",")])
    if names:
        return _only(names, "VLLM_PLUGINS")
    for_cpu = "cpu" in here.version
    fits = {
        "tpu": "libtpu" in here.importable,
        "cuda": "NVIDIA GPU" in here.hardware and not for_cpu,
        "rocm": "AMD GPU" in here.hardware and "amdsmi" in here.importable,
        "xpu": "xpu" in here.available and "intel_extension_for_pytorch" in here.importable,
        "cpu": for_cpu or here.darwin,
    }
    found = [name for name, fit in fits.items() if fit]
    if len(found) > 1:
        return Answer(fails=f"it takes one platform, and {', '.join(found)} fit")
    if not found:
        return Answer(fails="it finds no platform, and cannot infer a device")
    return Answer({"rocm": "cuda"}.get(found[0], found[0]))


def _sglang(here: Here) -> Answer:
    names = here.plugins.get("sglang.srt.platforms", ())
    if wanted := here.environ.get("SGLANG_PLATFORM"):
        if wanted not in names:
            return Answer(fails=f"SGLANG_PLATFORM={wanted!r} names no installed platform plugin")
        names = (wanted,)
    if names:
        return _only(names, "SGLANG_PLATFORM")
    if here.environ.get("SGLANG_USE_CPU_ENGINE") == "1":
        return Answer("cpu")
    order = [("cuda", ""), ("xpu", ""), ("npu", ""), ("hpu", "habana_frameworks.torch")]
    return _first(here, order) or Answer(fails="it knows no accelerator here (CUDA, XPU, HPU, NPU)")


def _ray(here: Here) -> Answer:
    """What a worker of Ray Train with an accelerator of this host gets: GPU before HPU before NPU."""
    if here.hardware & {"NVIDIA GPU", "AMD GPU"}:
        return Answer("cuda" if "cuda" in here.available else "cpu")
    if "hpu" in here.available and "habana_frameworks.torch" in here.importable:
        return Answer("hpu")
    return Answer("npu" if "Ascend NPU" in here.hardware and "npu" in here.available else "cpu")


_ARGUMENTS = "AcceleratorArguments of accel_core.integrations.transformers before TrainingArguments"

#: In the order in which they are told. Of vLLM, SGLang and Ray the public sources were read, nothing was run.
FRAMEWORKS = (
    Framework(
        "DeepSpeed",
        "deepspeed",
        "0.19.8, accelerator/real_accelerator.py, get_accelerator",
        _deepspeed,
        to_ours="export DS_ACCELERATOR={} where DeepSpeed knows that name, else activate() of "
        "accel_core.integrations.deepspeed",
    ),
    Framework(
        "Accelerate",
        "accelerate",
        "1.15.0, state.py, PartialState",
        _accelerate,
        to_ours="export ACCELERATE_TORCH_DEVICE={}",
        to_cpu="export ACCELERATE_USE_CPU=1",
    ),
    Framework(
        "Transformers' Trainer",
        "transformers",
        "5.23.0, training_args.py, _setup_devices",
        _trainer,
        to_ours=_ARGUMENTS,
        to_cpu=f"TrainingArguments(use_cpu=True), or {_ARGUMENTS}",
        from_theirs={"cpu": "export ACCELERATE_TORCH_DEVICE={}"},
    ),
    Framework(
        "Lightning",
        "lightning",
        "2.6.6, fabric/utilities/device_parser.py, _select_auto_accelerator",
        _lightning,
        to_ours="Trainer(**trainer_options()) with accel_core.integrations.lightning",
        from_theirs={"mps": "export DISABLE_MPS=1"},
    ),
    Framework(
        "vLLM",
        "vllm",
        "682f30b7, platforms/__init__.py, resolve_current_platform_cls_qualname",
        _vllm,
        to_ours="install vLLM's platform plugin for {}, and name it alone in VLLM_PLUGINS",
        to_cpu="install vLLM's build for the CPU",
    ),
    Framework(
        "SGLang",
        "sglang",
        "0706bb65, srt/platforms/__init__.py; srt/utils/common.py, get_device",
        _sglang,
        to_ours="start the server with --device {}",
        to_cpu="export SGLANG_USE_CPU_ENGINE=1",
    ),
    Framework(
        "Ray",
        "ray",
        "d5afd030, _private/accelerators; air/_internal/device_manager",
        _ray,
        to_ours="count it as a resource of Ray's yourself, and name torch.device('{}') in the worker",
        to_cpu="give its workers no accelerator: ScalingConfig(use_gpu=False)",
    ),
)
