"""`Backend`: a plugin's frozen declaration of one backend.

It holds strings and numbers only, so that listing, ranking and diagnosing need neither torch nor the
vendor's package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from accel_core._support.record import Record, dataclass
from accel_core._text import clean, shown
from accel_core.errors import InvalidBackendError

__all__ = [
    "API_LEVEL",
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

#: What this accel-core understands. Raised when a hook, a field or a member is added; a plugin states
#: the level that it was written for, and a plugin that needs a higher one is refused with that reason.
API_LEVEL = 2


#: Builds of torch that a backend can ask for, by their names in `torch.version`.
TORCH_BUILDS = ("cuda", "hip", "xpu")
#: Who besides Docker gives a process devices: `machine.placement`.
GRANTORS = ("kubernetes", "slurm", "apptainer", "podman")
#: Grammars of visible-devices variables, which `machine.visible_devices` parses.
GRAMMARS = ("cuda", "ascending", "modules", "mlu", "level-zero", "indices")

#: What `is_variable_prefix` wants, in words.
EXPECTED_PREFIX = "expected a prefix of three characters or more, such as 'HCCL_'"


class Provenance(Record):
    """Where a backend came from: the distribution, its version and the entry point.

    `distribution` is empty for what accel-core itself brings.
    """

    distribution: str
    version: str
    entry_point: str = ""
    value: str = ""

    def __str__(self) -> str:
        return clean(f"{self.distribution} {self.version}")


class ProbeResult(Record):
    """What `accel_probe` answers: usable or not, why, and what the user can do about it."""

    usable: bool
    #: One clause, without the backend's name: "torch.cuda is impersonated by torch_supa".
    reason: str = ""
    #: The next step: a command or a setting.
    hint: str = ""
    #: Number of devices, where the probe knows it.
    devices: int | None = None
    #: The device may be there, but this backend leaves it to another one.
    stands_aside: bool = False


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
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
        api_level: The accel-core API level that the plugin was written for; 1 for those that do not say.
        description: One line for people.
        url: Where users of this backend read on.
        install_hint: What to do when the vendor import is missing: `"pip install torch-npu"`.
        requires: Set it when distributions must be present, as PEP 508 requirements: `"torch>=2.6"`.
        follows_torch: Set it when a distribution must have torch's major and minor version: `"torch-npu"`.
        torch_builds: Set it when torch must be built for the device: any of `TORCH_BUILDS` (level 2).
        wrapped_by: Set it when packages put functions around torch's own with the same device still behind
            (level 2). Whatever else replaces functions of `torch.<device_type>`, where torch itself brings
            it, has taken it over.
        taken_over_by: Set it when packages put another device behind torch's own functions (level 2).
        platforms: Set it when only some systems have it: prefixes of `sys.platform`, or `-machine` behind.
        hardware: What people call the device, in the singular (level 2): `"NVIDIA GPU"`.
        device_nodes: Set it when the driver makes device nodes: glob patterns, `"/dev/davinci[0-9]*"`.
        shared_nodes: Set it when it has nodes that other makers' have too (level 2), `"/dev/dri/renderD*"`:
            no sign of the device, but that there is none tells of a container without its devices.
        pci_ids: Set it when the device is on the PCI bus: `"vendor"`, `"vendor:device"` or `"vendor/class"`
            in lower-case hexadecimal, `"10de/03"`.
        driver_file: A file or folder that only a loaded driver brings (level 2): `"/sys/module/biren"`.
        driver_hint: What to do where the device is on the bus and the driver is not loaded (level 2).
        container_hint: How to start a container with its devices (level 2): `"docker run --gpus all"`.
        granted_by: Set it when others than Docker have their own word for the device (level 2): pairs of
            `"kubernetes"` and its resource (`"nvidia.com/gpu"`), `"slurm"` and the name in `--gres`,
            `"apptainer"` or `"podman"` and flags (`"--nv"`).
        hints: Set it when known errors have a known next step (level 2): pairs of a regular expression,
            found in the error's text whatever the case, and the step. The first that fits counts. For what
            takes more, there is `accel_explain`.
        visible_devices: Set it when variables say which devices a process sees, the one that wins first.
        visible_devices_filters: Set it when variables filter before those, each by itself (level 2):
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
            fork (level 2): devices are counted in a child process, and the choice goes by that answer.
        provenance: Where the declaration comes from. Filled in by discovery.
    """

    name: str
    priority: int
    device_type: str
    vendor_import: str | tuple[str, ...] = "torch"
    accelerator: str = ""
    api_level: int = 1
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

    if not TYPE_CHECKING:  # checkers have the signature from the fields

        def __init__(self, **given):
            _require_known(given)
            values = self.__dict__
            values.update(given)
            if isinstance(self.vendor_import, str):
                values["vendor_import"] = (self.vendor_import,)
            faults = _faults(self)
            if faults:
                raise _invalid(self.name, self.api_level, faults)

        def __setattr__(self, name, value):
            from dataclasses import FrozenInstanceError

            raise FrozenInstanceError(f"cannot assign to field {name!r}")

        def __delattr__(self, name):
            from dataclasses import FrozenInstanceError

            raise FrozenInstanceError(f"cannot delete field {name!r}")

        def __replace__(self, **changes):
            return type(self)(**{**{name: getattr(self, name) for name in _NAMES}, **changes})

    def _declared_by(self, provenance: Provenance) -> Backend:
        """The same declaration, which was checked, with where it comes from."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__, provenance=provenance)
        return copy

    def _values(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in _NAMES)

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if isinstance(other, Backend) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"Backend({', '.join(f'{n}={getattr(self, n)!r}' for n in _NAMES)})"

    @property
    def vendor_imports(self) -> tuple[str, ...]:
        """`vendor_import` as a tuple, which is how it is kept."""
        return (self.vendor_import,) if isinstance(self.vendor_import, str) else self.vendor_import

    @property
    def distribution(self) -> str:
        """Name of the distribution that declares this backend; empty when that is not known."""
        return self.provenance.distribution if self.provenance else ""


_NAMES = tuple(Backend.__annotations__)


def _require_known(given: dict[str, Any]) -> None:
    """Raise where a field is given that there is not, or one is missing that has no default."""
    unknown = sorted(given.keys() - set(_NAMES))
    if unknown:
        fault = f"unknown field{'s' if len(unknown) > 1 else ''} {', '.join(map(repr, unknown))}"
        known = f"known fields: {', '.join(_NAMES)}"
        raise _invalid(given.get("name", "?"), given.get("api_level"), [fault], known)
    missing = [name for name in ("name", "priority", "device_type") if name not in given]
    if missing:
        raise TypeError(f"Backend() is missing {', '.join(missing)}")


def _invalid(name: object, level: object, faults: list[str], known: str = "") -> InvalidBackendError:
    """The error; a level that is newer than this accel-core explains every fault, and `known` no more."""
    newer = isinstance(level, int) and level > API_LEVEL
    said = f"the declaration is for API level {shown(level)} and this accel-core has {API_LEVEL}"
    told = "; ".join(filter(None, [*faults, said if newer else known]))
    hint = "pip install --upgrade accel-core" if newer else ""
    return InvalidBackendError(f"backend {shown(name)}: {told}", hint=hint)


#: Beyond it a number means nothing, and may have more digits than Python prints.
_LARGEST = 10**9


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


def _faults(backend: Backend) -> list[str]:
    """Every fault of the declaration, in the order of its fields."""
    faults = _type_faults(backend)
    if faults:
        return faults  # patterns cannot be tried on values of the wrong type

    def check(field: str, fits: Callable[[str], bool], example: str, *, optional: bool = False) -> None:
        value = getattr(backend, field)
        for item in value if isinstance(value, tuple) else (value,):
            if not (optional and not item) and not fits(item):
                faults.append(f"{field} {shown(item)} is malformed, expected e.g. {example!r}")

    check("name", _is_name, "npu")
    check("device_type", _is_device_type, "npu")
    check("vendor_import", _is_module, "torch_npu")
    check("accelerator", _is_object, "accel_npu.accelerator:NPUAccelerator", optional=True)
    check("device_nodes", _is_node, "/dev/davinci[0-9]*")
    check("shared_nodes", _is_node, "/dev/dri/renderD*")
    check("pci_ids", _is_pci, "10de/03")
    check("driver_file", _is_node, "/proc/driver/nvidia/version", optional=True)
    check("torch_builds", TORCH_BUILDS.__contains__, "cuda")
    check("wrapped_by", _is_word, "spaces")
    check("taken_over_by", _is_word, "torch_xmlir")
    check("visible_devices", _is_word, "ASCEND_RT_VISIBLE_DEVICES")
    check("visible_devices_filters", _is_word, "ROCR_VISIBLE_DEVICES")
    faults.extend(
        f"export_envs {shown(prefix)} is malformed or stands for too much, {EXPECTED_PREFIX}"
        for prefix in backend.export_envs
        if not is_variable_prefix(prefix)
    )
    check("environment", _is_assignment, "PT_HPU_LAZY_ACC_PAR_MODE=0")
    check("impersonates", _is_device_type, "cuda", optional=True)
    if backend.api_level < 1:
        faults.append(f"api_level {backend.api_level} is not 1 or more")
    elif backend.api_level < 2 and (newer := [name for name in _LEVEL_2 if getattr(backend, name)]):
        # An older accel-core then says "upgrade me" instead of "unknown field".
        faults.append(f"api_level {backend.api_level} has no {', '.join(newer)}, expected api_level=2")
    if not backend.vendor_imports:
        faults.append("vendor_import names no module, expected e.g. 'torch_npu'")
    faults += _pair_faults("hints", backend.hints, r"('lib(cuda)\\.so', 'install the driver')")
    faults += _pair_faults("granted_by", backend.granted_by, "('kubernetes', 'nvidia.com/gpu')", GRANTORS)
    if backend.visible_devices_grammar not in GRAMMARS:
        faults.append(
            f"visible_devices_grammar {shown(backend.visible_devices_grammar)} is unknown, "
            f"expected one of {', '.join(GRAMMARS)}"
        )
    return faults


def _pair_faults(
    field: str, pairs: tuple[tuple[str, str], ...], example: str, firsts: tuple[str, ...] = ()
) -> list[str]:
    """What is wrong with a table; patterns in it are compiled when an error is there to be explained."""
    return [
        f"{field}: {shown(row)} is malformed, expected e.g. {example}"
        for row in pairs
        if not (isinstance(row, tuple) and len(row) == 2 and all(isinstance(part, str) for part in row))
        or (firsts and row[0] not in firsts)
    ]


#: Fields that API level 1 does not have.
_LEVEL_2 = (
    "torch_builds", "wrapped_by", "taken_over_by", "hardware", "shared_nodes", "driver_file", "driver_hint",
    "container_hint", "granted_by", "hints", "visible_devices_filters", "count_starts_device",
)  # fmt: skip

_TYPES: dict[str, type] = {
    "priority": int, "api_level": int, "private_use1": bool, "isolated_probe": bool,
    "count_starts_device": bool,
}  # fmt: skip
_TUPLES = (
    "vendor_import", "requires", "follows_torch", "torch_builds", "wrapped_by", "taken_over_by", "platforms",
    "device_nodes", "shared_nodes", "pci_ids", "visible_devices", "visible_devices_filters", "export_envs",
    "environment",
)  # fmt: skip


def _type_faults(backend: Backend) -> list[str]:
    faults = []
    for name in filter(vars(backend).__contains__, _NAMES):  # the defaults fit
        value = getattr(backend, name)
        if name == "provenance":
            if value is not None and not isinstance(value, Provenance):
                faults.append(_misfit(name, value, "Provenance"))
        elif name in ("hints", "granted_by"):
            if not isinstance(value, tuple):
                faults.append(_misfit(name, value, "a tuple of pairs of str"))
        elif name in _TUPLES:
            if not isinstance(value, tuple) or not all(isinstance(item, str) for item in value):
                faults.append(_misfit(name, value, "a tuple of str"))
        elif type(value) is not (expected := _TYPES.get(name, str)):
            # `type is`: True is an int to isinstance, and a priority of True is a mistake.
            faults.append(_misfit(name, value, expected.__name__))
        elif isinstance(value, int) and abs(value) > _LARGEST:
            faults.append(f"{name} is out of range, expected one from -{_LARGEST} to {_LARGEST}")
    return faults


def _misfit(name: str, value: object, expected: str) -> str:
    return f"{name} {shown(value)} is {type(value).__name__}, expected {expected}"
