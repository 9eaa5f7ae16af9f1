"""`Backend`: a plugin's frozen declaration of one backend.

It holds strings and numbers only, so that listing, ranking and diagnosing need neither torch nor the
vendor's package.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

from accel_core._support.record import Record
from accel_core.errors import InvalidBackendError

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    class _Fields:
        """`__dataclass_fields__`, made when `dataclasses.replace` or `fields` first asks for it.

        `dataclasses` loads `inspect`: 7 ms of a process without torch, and what it makes of so many fields
        takes a millisecond more.
        """

        def __get__(self, instance, owner):
            import dataclasses

            dataclasses.dataclass(init=False, eq=False, repr=False, kw_only=True)(owner)
            return owner.__dict__["__dataclass_fields__"]

    def dataclass(**_):
        def with_fields(cls):
            cls.__dataclass_fields__ = _Fields()
            return cls

        return with_fields


__all__ = [
    "API_LEVEL",
    "ENTRY_POINT_GROUP",
    "PROJECT",
    "Backend",
    "ProbeResult",
    "Provenance",
    "hint_for",
    "hookimpl",
]

Function = TypeVar("Function", bound=Callable[..., Any])

#: The entry-point group that discovery reads.
ENTRY_POINT_GROUP = "accel.backends"
#: pluggy's project name.
PROJECT = "accel"

#: What this accel-core understands. Raised when a hook, a field or a member is added; a plugin states
#: the level that it was written for, and a plugin that needs a higher one is refused with that reason.
API_LEVEL = 2


@overload
def hookimpl(function: Function) -> Function: ...
@overload
def hookimpl(
    function: None = None,
    hookwrapper: bool = False,
    optionalhook: bool = False,
    tryfirst: bool = False,
    trylast: bool = False,
    specname: str | None = None,
    wrapper: bool = False,
) -> Callable[[Function], Function]: ...
def hookimpl(
    function: Function | None = None,
    hookwrapper: bool = False,
    optionalhook: bool = False,
    tryfirst: bool = False,
    trylast: bool = False,
    specname: str | None = None,
    wrapper: bool = False,
) -> Function | Callable[[Function], Function]:
    """Mark a function of a plugin as an implementation of one of the hooks of `accel_core.hookspecs`.

    It does what `pluggy.HookimplMarker("accel")` does, options included, without importing pluggy, for
    which a process that only looks at declarations has no use.
    """

    def mark(function: Function) -> Function:
        options = {
            "wrapper": wrapper,
            "hookwrapper": hookwrapper,
            "optionalhook": optionalhook,
            "tryfirst": tryfirst,
            "trylast": trylast,
            "specname": specname,
        }
        setattr(function, f"{PROJECT}_impl", options)
        return function

    return mark if function is None else mark(function)


#: Builds of torch that a backend can ask for, by their names in `torch.version`.
TORCH_BUILDS = ("cuda", "hip", "xpu")

#: Names of the visible-devices grammars that `accel_core.machine.visible_devices` parses.
GRAMMARS = ("cuda", "ascending", "modules", "mlu", "level-zero", "indices")


class Provenance(Record):
    """Where a backend came from: the distribution, its version and the entry point.

    `distribution` is empty for what accel-core itself brings.
    """

    distribution: str
    version: str
    entry_point: str = ""
    value: str = ""

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}".strip()


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
    """

    #: Lower-case name, the value of `DS_ACCELERATOR`: `"npu"`, `"xpu.external"`.
    name: str
    #: Rank among the usable backends, highest first. First-party plugins use 0 to 900.
    priority: int
    #: torch's device type: `torch.device(device_type)`.
    device_type: str
    #: Modules that bring the device into torch; the first that is installed is imported.
    vendor_import: str | tuple[str, ...] = "torch"
    #: The class to build, `"module:Class"`, called with this declaration; empty for `TorchAccelerator`. A
    #: subclass of DeepSpeed's `DeepSpeedAccelerator`, called without arguments, is adapted.
    accelerator: str = ""
    #: The accel-core API level that the plugin was written for; 1 for those that do not say.
    api_level: int = 1
    #: One line for people.
    description: str = ""
    #: Where users of this backend read on.
    url: str = ""
    #: What to install when the vendor import is missing: `"pip install torch-npu"`.
    install_hint: str = ""
    #: Distributions that must be present, as PEP 508 requirements: `"torch>=2.6"`.
    requires: tuple[str, ...] = ()
    #: Distributions built for one release of torch: major and minor version must be torch's. `"torch-npu"`.
    follows_torch: tuple[str, ...] = ()
    #: What torch must be built with, any of `TORCH_BUILDS`: `("hip",)` (level 2).
    torch_builds: tuple[str, ...] = ()
    #: Packages that put functions around torch's own with the same device still behind (level 2). Whatever
    #: else replaces functions of `torch.<device_type>`, where torch itself brings it, has taken it over.
    wrapped_by: tuple[str, ...] = ()
    #: `sys.platform`, or `sys.platform-machine`, prefixes on which the device can exist. Empty: any.
    platforms: tuple[str, ...] = ()
    #: What people call the device, in the singular (level 2): `"NVIDIA GPU"`.
    hardware: str = ""
    #: Glob patterns of the device nodes: `"/dev/davinci[0-9]*"`.
    device_nodes: tuple[str, ...] = ()
    #: Patterns of nodes that this device has, and other makers' have too (level 2): `"/dev/dri/renderD*"`.
    #: One of them is no sign of the device; that there is none tells of a container without its devices.
    shared_nodes: tuple[str, ...] = ()
    #: PCI ids, `"vendor"`, `"vendor:device"` or `"vendor/class"` in lower-case hexadecimal: `"10de/03"`.
    pci_ids: tuple[str, ...] = ()
    #: A file or folder that is there when the kernel has the driver loaded, and only then (level 2):
    #: `"/proc/driver/nvidia/version"`.
    driver_file: str = ""
    #: What to do where a device is on the bus and the driver is not loaded (level 2).
    driver_hint: str = ""
    #: How to start a container with its devices (level 2): `"start it with its GPUs: docker run --gpus all"`.
    container_hint: str = ""
    #: What an error's text says, as a regular expression, and the next step for a user (level 2). The first
    #: that fits counts; upper and lower case are one. For what takes more, there is `accel_explain`.
    hints: tuple[tuple[str, str], ...] = ()
    #: Visible-devices variables, the one that wins first.
    visible_devices: tuple[str, ...] = ()
    #: Variables that filter before those, each by itself (level 2): `("ROCR_VISIBLE_DEVICES",)`.
    visible_devices_filters: tuple[str, ...] = ()
    #: How their value is written: one of `GRAMMARS`.
    visible_devices_grammar: str = "indices"
    #: Prefixes of the variables that a launcher forwards to other nodes.
    export_envs: tuple[str, ...] = ()
    #: Variables that the vendor wants set, `"NAME=value"`: for what starts ranks, and `activate()`.
    environment: tuple[str, ...] = ()
    #: torch.distributed's backend name; empty where the class works it out.
    communication_backend: str = "gloo"
    #: torch.compile's backend name.
    compile_backend: str = "inductor"
    #: The device type is torch's renamed PrivateUse1, of which a process has one.
    private_use1: bool = False
    #: A torch device namespace that this vendor's package takes over (`torch_supa`: `"cuda"`).
    impersonates: str = ""
    #: Import the vendor in a child process first: it may crash, exit or hang.
    isolated_probe: bool = False
    #: Filled in by discovery.
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
                raise InvalidBackendError(f"backend {self.name!r}: " + "; ".join(faults))

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
        level = given.get("api_level", API_LEVEL)
        newer = isinstance(level, int) and level > API_LEVEL
        raise InvalidBackendError(
            f"backend {given.get('name', '?')!r}: unknown field"
            f"{'s' if len(unknown) > 1 else ''} {', '.join(map(repr, unknown))}; "
            + (
                f"the declaration is for API level {level} and this accel-core has {API_LEVEL}"
                if newer
                else f"known fields: {', '.join(_NAMES)}"
            ),
            hint="pip install --upgrade accel-core" if newer else "",
        )
    missing = [name for name in ("name", "priority", "device_type") if name not in given]
    if missing:
        raise TypeError(f"Backend() is missing {', '.join(missing)}")


def missing_defaults(backend: Backend, environ: Mapping[str, str]) -> dict[str, str]:
    """Those variables of `Backend.environment` that are not set in `environ`, with the vendor's values."""
    wanted = (assignment.partition("=") for assignment in backend.environment)
    return {name: value for name, _, value in wanted if name not in environ}


def hint_for(error: BaseException, hints: Iterable[tuple[str, str]]) -> str | None:
    """The hint of the first pattern that is found in the text of `error` and its causes; `None` without one.

    For `Backend.hints`, and for a plugin's `accel_explain`. `hints` are regular expressions, each with the
    next step for a user; upper and lower case are one.
    """
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:  # a chain may be a ring
        chain.append(link)
        link = link.__cause__ or link.__context__
    text = "\n".join(map(str, chain))
    return next((hint for pattern, hint in hints if re.search(pattern, text, re.IGNORECASE)), None)


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
    return re.fullmatch(r"[0-9a-f]{4}(:[0-9a-f]{4})?(/[0-9a-f]{2})?", text) is not None


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
                faults.append(f"{field} {item!r} is malformed, expected e.g. {example!r}")

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
    check("visible_devices", _is_word, "ASCEND_RT_VISIBLE_DEVICES")
    check("visible_devices_filters", _is_word, "ROCR_VISIBLE_DEVICES")
    check("environment", _is_assignment, "PT_HPU_LAZY_ACC_PAR_MODE=0")
    check("impersonates", _is_device_type, "cuda", optional=True)
    if backend.api_level < 1:
        faults.append(f"api_level {backend.api_level!r} is not 1 or more")
    elif backend.api_level < 2 and (newer := [name for name in _LEVEL_2 if getattr(backend, name)]):
        # An older accel-core then says "upgrade me" instead of "unknown field".
        faults.append(f"api_level {backend.api_level} has no {', '.join(newer)}, expected api_level=2")
    if not backend.vendor_imports:
        faults.append("vendor_import names no module, expected e.g. 'torch_npu'")
    faults += _hint_faults(backend.hints)
    if backend.visible_devices_grammar not in GRAMMARS:
        faults.append(
            f"visible_devices_grammar {backend.visible_devices_grammar!r} is unknown, "
            f"expected one of {', '.join(GRAMMARS)}"
        )
    return faults


def _hint_faults(hints: tuple[tuple[str, str], ...]) -> list[str]:
    """What is wrong with the table of hints. Patterns are compiled when an error is there to be explained."""
    return [
        f"hints: {row!r} is malformed, expected e.g. ('lib(cuda)\\\\.so', 'install the driver')"
        for row in hints
        if not (isinstance(row, tuple) and len(row) == 2 and all(isinstance(part, str) for part in row))
    ]


#: Fields that API level 1 does not have.
_LEVEL_2 = (
    "torch_builds", "wrapped_by", "hardware", "shared_nodes", "driver_file", "driver_hint", "container_hint",
    "hints", "visible_devices_filters",
)  # fmt: skip

_TYPES: dict[str, type] = {"priority": int, "api_level": int, "private_use1": bool, "isolated_probe": bool}
_TUPLES = (
    "vendor_import", "requires", "follows_torch", "torch_builds", "wrapped_by", "platforms", "device_nodes",
    "shared_nodes", "pci_ids", "visible_devices", "visible_devices_filters", "export_envs", "environment",
)  # fmt: skip


def _type_faults(backend: Backend) -> list[str]:
    faults = []
    for name in _NAMES:
        value = getattr(backend, name)
        if name == "provenance":
            if value is not None and not isinstance(value, Provenance):
                faults.append(f"provenance {value!r} is {type(value).__name__}, expected Provenance")
        elif name == "hints":
            if not isinstance(value, tuple):
                faults.append(f"hints {value!r} is {type(value).__name__}, expected a tuple of pairs of str")
        elif name in _TUPLES:
            if not isinstance(value, tuple) or not all(isinstance(item, str) for item in value):
                faults.append(f"{name} {value!r} is {type(value).__name__}, expected a tuple of str")
        elif type(value) is not (expected := _TYPES.get(name, str)):
            # `type is`: True is an int to isinstance, and a priority of True is a mistake.
            faults.append(f"{name} {value!r} is {type(value).__name__}, expected {expected.__name__}")
    return faults
