"""`Backend`: a plugin's frozen declaration of one backend.

It holds strings and numbers only, so that listing, ranking and diagnosing need neither torch nor the
vendor's package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import InitVar, dataclass, fields
from inspect import Signature, signature
from typing import Any, NamedTuple

from accel_core import __version__
from accel_core.errors import InvalidBackendError, clean, shown

__all__ = [
    "ENTRY_POINT_GROUP",
    "PROJECT",
    "Backend",
    "ProbeResult",
    "Provenance",
    "shown",
]

#: The entry-point group that discovery reads.
ENTRY_POINT_GROUP = "accel.backends"
#: pluggy's project name.
PROJECT = "accel"

#: Builds of torch that a backend can ask for, by their names in `torch.version`.
TORCH_BUILDS = ("cuda", "hip", "xpu")
#: Who besides Docker gives a process devices: `machine.placement`, and the doors of accel-train.
GRANTORS = ("kubernetes", "slurm", "apptainer", "podman", "ray", "ray_noset")
#: Grammars of visible-devices variables, which `machine.visible_devices` parses.
GRAMMARS = ("cuda", "ascending", "modules", "mlu", "level-zero", "indices")

#: What `is_variable_prefix` wants, in words.
EXPECTED_PREFIX = "expected a prefix of three characters or more, such as 'HCCL_'"


class Provenance(NamedTuple):
    """A backend's origin: the distribution, its version and the entry point.

    `distribution` is empty for what accel-core itself brings.
    """

    distribution: str
    version: str
    entry_point: str = ""
    value: str = ""

    def __str__(self) -> str:
        return clean(f"{self.distribution} {self.version}")


class ProbeResult(NamedTuple):
    """An answer of `accel_probe`: usable or not, why, and the user's next step."""

    usable: bool
    #: One clause, without the backend's name: "torch.cuda is impersonated by torch_supa".
    reason: str = ""
    #: The next step: a command or a setting.
    hint: str = ""
    #: Number of devices, where the probe knows it.
    devices: int | None = None
    #: The device may be there, but this backend leaves it to another one.
    stands_aside: bool = False


@dataclass(frozen=True, kw_only=True)
class Backend:
    """One kind of accelerator, as its plugin declares it.

    Raises `InvalidBackendError`, naming every fault at once, when a field is unknown or malformed.

    Fields:
        name: What users write in `DS_ACCELERATOR`, in lower case: `"npu"`, `"xpu.external"`.
        priority: Rank among the usable backends, highest first. First-party plugins use 0 to 900.
        device_type: torch's device type, as in `torch.device(device_type)`.
        vendor_import: Set it when a package other than torch brings the device into torch: the module to
            import, or several, of which the first that is installed is imported.
        accelerator: Set it when the device needs its own class: `"module:Class"`. Empty: `TorchAccelerator`.
        description: One line for people.
        url: Where users of this backend read on.
        install_hint: What to do when the vendor import is missing: `"pip install torch-npu"`.
        requires: Set it when distributions must be present, as PEP 508 requirements: `"torch>=2.6"`.
        follows_torch: Set it when a distribution must have torch's major and minor version: `"torch-npu"`.
        torch_builds: Set it when torch must be built for the device: any of `TORCH_BUILDS`.
        wrapped_by: Set it when packages put functions around torch's own with the same device still behind
            them. Whatever else replaces functions of `torch.<device_type>`, where torch itself brings it,
            has taken it over.
        taken_over_by: Set it when packages put another device behind torch's own functions.
        platforms: Set it when only some systems have it: prefixes of `sys.platform`, or `-machine` behind.
        hardware: What people call the device, in the singular: `"NVIDIA GPU"`.
        device_nodes: Set it when the driver makes device nodes: glob patterns, `"/dev/davinci[0-9]*"`.
        shared_nodes: Set it when it has nodes that other makers' devices have too, `"/dev/dri/renderD*"`:
            they are no sign of the device; their absence is one of a container without its devices.
        pci_ids: Set it when the device is on the PCI bus: `"vendor"`, `"vendor:device"` or `"vendor/class"`
            in lower-case hexadecimal, `"10de/03"`.
        driver_file: A file or folder that only a loaded driver brings: `"/sys/module/biren"`.
        driver_hint: What to do where the device is on the bus and the driver is not loaded.
        container_hint: How to start a container with its devices: `"docker run --gpus all"`.
        granted_by: Set it when others than Docker have their own word for the device: pairs of
            `"kubernetes"` and its resource (`"nvidia.com/gpu"`), `"slurm"` and the name in `--gres`,
            `"apptainer"` or `"podman"` and flags (`"--nv"`), `"ray"` and its resource (`"NPU"`),
            `"ray_noset"` and the variable that keeps Ray from setting the visible-devices variable.
        hints: Set it when known errors have a known next step: pairs of a regular expression,
            found in the error's text whatever the case, and the step. The first that fits counts. For what
            takes more, there is `accel_explain`.
        visible_devices: Set it when variables say which devices a process sees, the one that wins first.
        visible_devices_filters: Set it when variables filter before those, each by itself:
            `("ROCR_VISIBLE_DEVICES",)`.
        visible_devices_grammar: How their value is written: one of `GRAMMARS`.
        export_envs: Prefixes of the variables that a launcher forwards to other nodes, three characters or
            more: `"HCCL_"`. All that begin so go, whatever they hold.
        environment: Set it when the vendor wants variables set, `"NAME=value"`: for ranks, and `activate()`.
        communication_backend: torch.distributed's. Empty: what torch has for the device, else `"staged"`.
        compile_backend: torch.compile's. Empty: `"inductor"` where it has code for it, else `"aot_eager"`.
        private_use1: Set it when the device is torch's renamed PrivateUse1, of which a process has one.
        impersonates: Set it when the vendor takes over another torch namespace (`torch_supa`: `"cuda"`).
        isolated_probe: Set it when importing the vendor may crash or hang: a child process imports it first.
        count_starts_device: Set it when `device_count()` starts the runtime, after which a process cannot
            fork: devices are counted in a child process, and the choice goes by that answer.
        provenance: Where the declaration comes from. Filled in by discovery.
    """

    name: str
    priority: int
    device_type: str
    vendor_import: str | tuple[str, ...] = "torch"
    accelerator: str = ""
    description: str = ""
    url: str = ""
    install_hint: str = ""
    requires: tuple[str, ...] = ()
    follows_torch: tuple[str, ...] = ()
    torch_builds: tuple[str, ...] = ()
    wrapped_by: tuple[str, ...] = ()
    taken_over_by: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    hardware: str = ""
    device_nodes: tuple[str, ...] = ()
    shared_nodes: tuple[str, ...] = ()
    pci_ids: tuple[str, ...] = ()
    driver_file: str = ""
    driver_hint: str = ""
    container_hint: str = ""
    granted_by: tuple[tuple[str, str], ...] = ()
    hints: tuple[tuple[str, str], ...] = ()
    visible_devices: tuple[str, ...] = ()
    visible_devices_filters: tuple[str, ...] = ()
    visible_devices_grammar: str = "indices"
    export_envs: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    communication_backend: str = ""
    compile_backend: str = ""
    private_use1: bool = False
    impersonates: str = ""
    isolated_probe: bool = False
    count_starts_device: bool = False
    provenance: Provenance | None = None
    #: Ignored: what plugins that were built before there was a release may still state.
    api_level: InitVar[int] = 0

    def __new__(cls, *_: object, **given: object) -> Backend:
        """Refuse fields that do not exist, all at once: `__init__` would name the first."""
        unknown = [repr(name) for name in sorted(given.keys() - cls.__dataclass_fields__.keys())]
        if unknown:
            raise InvalidBackendError(
                f"backend {shown(given.get('name', '?'))}: Backend() got an unknown field "
                f"{', '.join(unknown)}: accel-core {__version__} does not know it; upgrade accel-core, "
                f"or remove the field; known fields: {', '.join(field.name for field in fields(cls))}"
            )
        return object.__new__(cls)

    def __post_init__(self, api_level: int) -> None:
        if isinstance(self.vendor_import, str):
            object.__setattr__(self, "vendor_import", (self.vendor_import,))
        faults = _faults(self)
        if faults:
            raise InvalidBackendError(f"backend {shown(self.name)}: {'; '.join(faults)}")

    def _declared_by(self, provenance: Provenance) -> Backend:
        """Return the same declaration with its provenance; it was checked, and is not checked again."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__, provenance=provenance)
        return copy

    @property
    def vendor_imports(self) -> tuple[str, ...]:
        """`vendor_import` as a tuple, which is how it is kept."""
        return (self.vendor_import,) if isinstance(self.vendor_import, str) else self.vendor_import

    @property
    def distribution(self) -> str:
        """Name of the distribution that declares this backend; empty when that is not known."""
        return self.provenance.distribution if self.provenance else ""


#: The fields by name, for `help()` and editors, which would read `__new__`.
Backend.__signature__ = Signature(  # type: ignore[attr-defined]
    [p for p in signature(Backend.__init__).parameters.values() if p.name not in ("self", "api_level")]
)


def _faults(backend: Backend) -> list[str]:
    """Every fault of the declaration, in the order of its fields."""
    faults = []
    for field in fields(backend):
        name, value = field.name, getattr(backend, field.name)
        has_type, kind = _TYPES[str(field.type)]
        if not has_type(value):
            faults.append(f"{name} {shown(value)} is {type(value).__name__}, expected {kind}")
        elif name in _FORMS and value != field.default:
            fits, expected = _FORMS[name]
            items = value if isinstance(value, tuple) else (value,)
            faults += [
                f"{name} {shown(item)} is malformed, expected {expected}" for item in items if not fits(item)
            ]
    if backend.vendor_import == ():
        faults.append("vendor_import names no module, expected e.g. 'torch_npu'")
    return faults


#: Beyond it a number means nothing, and may have more digits than Python prints.
_LARGEST = 10**9


def _is_texts(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(item, str) for item in value)


#: What a value of each annotation is, and that in words. `type is`, as True is an int to isinstance.
_TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "str": (lambda v: type(v) is str, "str"),
    "bool": (lambda v: type(v) is bool, "bool"),
    "int": (lambda v: type(v) is int and abs(v) <= _LARGEST, f"int from -{_LARGEST} to {_LARGEST}"),
    "tuple[str, ...]": (_is_texts, "a tuple of str"),
    "str | tuple[str, ...]": (_is_texts, "a tuple of str"),
    "tuple[tuple[str, str], ...]": (lambda v: isinstance(v, tuple), "a tuple of pairs of str"),
    "Provenance | None": (lambda v: v is None or isinstance(v, Provenance), "Provenance"),
}

# Predicates rather than regular expressions: every process that chooses declares two backends at least,
# and compiling patterns would cost more than all the rest of it.


def _is_word(text: str) -> bool:
    return text.isascii() and text.isidentifier()


def _is_device_type(text: str) -> bool:
    return _is_word(text) and text == text.lower() and text[0] != "_"


def _is_name(text: str) -> bool:
    return all(map(_is_device_type, text.split(".")))


def _is_module(text: str) -> bool:
    return all(map(_is_word, text.split(".")))


def _is_object(text: str) -> bool:
    module, _, name = text.partition(":")
    return _is_module(module) and _is_word(name)


def _is_node(text: str) -> bool:
    # Absolute; "**" would walk whole file systems.
    return text.startswith("/") and len(text) > 1 and text[1] != "/" and "**" not in text


def _is_pci(text: str) -> bool:
    ids, *classes = text.split("/", 1)
    vendor, *products = ids.split(":", 1)
    parts = [(vendor, 4), *((product, 4) for product in products), *((kind, 2) for kind in classes)]
    return all(len(part) == digits and not part.strip("0123456789abcdef") for part, digits in parts)


def is_variable_prefix(text: str) -> bool:
    """Whether a launcher may forward whatever begins so: less would be half the environment, or all of it."""
    return len(text) > 2 and len(text.strip("_")) > 1 and _is_word(text)


def _is_assignment(text: str) -> bool:
    name, equals, _ = text.partition("=")
    return bool(equals) and _is_word(name)


def _is_pair(row: object) -> bool:
    return isinstance(row, tuple) and len(row) == 2 and _is_texts(row)


#: What each value, or each item of it, must look like, and that in words; an empty default fits too.
_FORMS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "name": (_is_name, "e.g. 'npu'"),
    "device_type": (_is_device_type, "e.g. 'npu'"),
    "vendor_import": (_is_module, "e.g. 'torch_npu'"),
    "accelerator": (_is_object, "e.g. 'accel_npu.accelerator:NPUAccelerator'"),
    "torch_builds": (TORCH_BUILDS.__contains__, f"one of {', '.join(TORCH_BUILDS)}"),
    "wrapped_by": (_is_word, "e.g. 'spaces'"),
    "taken_over_by": (_is_word, "e.g. 'torch_xmlir'"),
    "device_nodes": (_is_node, "e.g. '/dev/davinci[0-9]*'"),
    "shared_nodes": (_is_node, "e.g. '/dev/dri/renderD*'"),
    "pci_ids": (_is_pci, "e.g. '10de/03'"),
    "driver_file": (_is_node, "e.g. '/proc/driver/nvidia/version'"),
    "granted_by": (
        lambda row: _is_pair(row) and row[0] in GRANTORS,
        "e.g. ('kubernetes', 'nvidia.com/gpu')",
    ),
    # Their patterns are compiled when an error is there to be explained.
    "hints": (_is_pair, r"e.g. ('lib(cuda)\.so', 'install the driver')"),
    "visible_devices": (_is_word, "e.g. 'ASCEND_RT_VISIBLE_DEVICES'"),
    "visible_devices_filters": (_is_word, "e.g. 'ROCR_VISIBLE_DEVICES'"),
    "visible_devices_grammar": (GRAMMARS.__contains__, f"one of {', '.join(GRAMMARS)}"),
    "export_envs": (is_variable_prefix, EXPECTED_PREFIX.removeprefix("expected ")),
    "environment": (_is_assignment, "e.g. 'PT_HPU_LAZY_ACC_PAR_MODE=0'"),
    "impersonates": (_is_device_type, "e.g. 'cuda'"),
}
