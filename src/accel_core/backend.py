"""`Backend`: a plugin's frozen declaration of one backend.

It holds strings and numbers only, so that listing, ranking and diagnosing need neither torch nor the
vendor's package. What belongs together stands in a record: `Hardware`, `Visibility`, `Granted`, `InTorch`,
`Environment`.
"""

import functools
import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from accel_core.errors import InvalidBackendError, clean, shown

#: The entry-point group that discovery reads.
ENTRY_POINT_GROUP = "accel.backends"
#: pluggy's project name.
PROJECT = "accel"

#: Builds of torch that a backend can ask for, by their names in `torch.version`.
TORCH_BUILDS = ("cuda", "hip", "xpu")
#: Grammars of visible-devices variables, which `machine.visible_devices` parses.
GRAMMARS = ("cuda", "ascending", "modules", "mlu", "level-zero", "indices")

#: What `is_variable_prefix` wants, in words.
EXPECTED_PREFIX = "expected a prefix of three characters or more, such as 'HCCL_'"


class Provenance(NamedTuple):
    """The distribution and the entry point that announce a backend, or something else.

    Those of what accel-core itself brings name no entry point.
    """

    distribution: str
    version: str
    #: Its name: `"npu"`.
    entry_point: str = ""
    #: What it names: `"package.module:object"`.
    value: str = ""

    @property
    def name(self) -> str:
        """The entry point's name, as `importlib.metadata` calls it."""
        return self.entry_point

    @property
    def module(self) -> str:
        """Return the module that the entry point's value names; empty if the value names none."""
        return self.value.partition("[")[0].partition(":")[0].strip()

    @property
    def top(self) -> str:
        """The top-level package of that module."""
        return self.module.partition(".")[0]

    def load(self) -> Any:
        """Import and return the module or object that the value names: `"package.module"`,
        `"package.module:object"`.
        """
        # Not by `metadata.EntryPoint`, which fails at a value such as "accel npu" without saying why.
        attributes = self.value.partition("[")[0].partition(":")[2].strip()
        loaded = importlib.import_module(self.module)
        return functools.reduce(getattr, filter(None, attributes.split(".")), loaded)

    def __str__(self) -> str:
        return clean(f"{self.distribution} {self.version}")


class ProbeResult(NamedTuple):
    """The result of `accel_probe`: whether the backend is usable, why, and the user's next step."""

    usable: bool
    #: One clause, without the backend's name: "torch.cuda is impersonated by torch_supa".
    reason: str = ""
    #: The next step: a command or a setting.
    hint: str = ""
    #: Number of devices, where the probe knows it.
    devices: int | None = None
    #: The device may be there, but this backend leaves it to another one.
    stands_aside: bool = False


class Hardware(NamedTuple):
    """Signs of the device that are visible without torch and without the vendor's package.

    Fields:
        name: The device's name for people, in the singular: `"NVIDIA GPU"`.
        nodes: Set it if the driver makes device nodes: glob patterns, `"/dev/davinci[0-9]*"`.
        shared_nodes: Set it if nodes of the device may be another maker's too, `"/dev/dri/renderD*"`: if they
            exist, that proves nothing; if not, a container lacks its devices.
        pci_ids: Set it if the device is on the PCI bus: `"vendor"`, `"vendor:device"` or `"vendor/class"`
            in lower-case hexadecimal, `"10de/03"`.
        driver_file: A file or folder that only a loaded driver brings: `"/sys/module/biren"`.
        driver_step: The next step if the device is on the bus and the driver is not loaded.
        platforms: Set it if only some systems have it: `"linux"`, or with the machine, `"darwin-arm64"`.
    """

    name: str = ""
    nodes: tuple[str, ...] = ()
    shared_nodes: tuple[str, ...] = ()
    pci_ids: tuple[str, ...] = ()
    driver_file: str = ""
    driver_step: str = ""
    platforms: tuple[str, ...] = ()


class Visibility(NamedTuple):
    """The environment variables that say which devices a process sees.

    Fields:
        variables: Their names, the one with the highest precedence first: `("ACME_VISIBLE_DEVICES",)`.
        filters: Variables that apply before those, one after the other: `("ROCR_VISIBLE_DEVICES",)`.
        grammar: The form of their values: one of `GRAMMARS`.
    """

    variables: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    grammar: str = "indices"


class Granted(NamedTuple):
    """Words with which containers and schedulers give a process the device.

    Fields:
        docker: Options of `docker run`: `"--gpus all"`, `"--device /dev/acme0"`.
        kubernetes: The resource's name: `"nvidia.com/gpu"`.
        slurm: The name in `--gres`: `"gpu"`.
        apptainer: Options of `apptainer exec`: `"--nv"`.
        podman: Options of `podman run`, if Docker's do not work there: `"--device nvidia.com/gpu=all"`.
        ray: The resource's name: `"NPU"`.
        ray_noset: The variable that keeps Ray from setting the visible-devices variable.
    """

    docker: str = ""
    kubernetes: str = ""
    slurm: str = ""
    apptainer: str = ""
    podman: str = ""
    ray: str = ""
    ray_noset: str = ""


class InTorch(NamedTuple):
    """The device's place in torch, and its relation to other vendors' packages.

    Fields:
        builds: Set it if torch must be built for the device: any of `TORCH_BUILDS`.
        same_version: Set it if a distribution must have torch's major and minor version: `("torch-npu",)`.
        private_use1: The device is torch's renamed PrivateUse1, of which a process has one.
        impersonates: Set it if the vendor takes over another torch namespace (`torch_supa`: `"cuda"`).
        wrapped_by: Packages that wrap torch's own functions and keep the same device. Any other package that
            replaces functions of torch's own `torch.<device_type>` counts as having taken it over.
        taken_over_by: Packages that put another device behind torch's own functions.
    """

    builds: tuple[str, ...] = ()
    same_version: tuple[str, ...] = ()
    private_use1: bool = False
    impersonates: str = ""
    wrapped_by: tuple[str, ...] = ()
    taken_over_by: tuple[str, ...] = ()


class Environment(NamedTuple):
    """Environment variables of a job's processes.

    Fields:
        forward: Prefixes of the variables that a launcher forwards to other nodes, three characters or
            more: `"HCCL_"`. Every variable with such a prefix is forwarded.
        set: Variables that the vendor recommends, `"NAME=value"`: ranks and `activate()` set them.
    """

    forward: tuple[str, ...] = ()
    set: tuple[str, ...] = ()


class Backend(NamedTuple):
    """One kind of accelerator, as its plugin declares it.

    Raises `InvalidBackendError`, which lists every fault, if a field is malformed.

    Fields:
        name: The name that users write in `DS_ACCELERATOR`, in lower case: `"npu"`, `"xpu.external"`.
        priority: Rank among the usable backends, highest first. First-party plugins use 0 to 900.
        device_type: torch's device type, as in `torch.device(device_type)`.
        vendor_import: Set it if a package other than torch brings the device into torch: the module to
            import. If you give several, the first that is installed is imported.
        accelerator: Set it if the device needs its own class: `"module:Class"`. Empty: `TorchAccelerator`.
        description: One line for people.
        url: A page with more for users of this backend.
        install_hint: The next step if the vendor import is missing: `"pip install torch-npu"`, or
            `"accel setup npu"` for a plugin whose table accel-tools reads.
        requires: Set it if distributions must be installed, as PEP 508 requirements: `"torch>=2.6"`.
        communication_backend: torch.distributed's backend. Empty: torch's for the device, else `"staged"`.
        compile_backend: torch.compile's backend. Empty: `"inductor"` if it supports it, else `"aot_eager"`.
        hardware: Signs of the device, visible without its package: `Hardware`.
        visibility: The variables that hide it: `Visibility`.
        granted: Words with which containers and schedulers give it: `Granted`.
        in_torch: Its place in torch, and its relation to other packages: `InTorch`.
        environment: Variables to forward to ranks, or to set for them: `Environment`.
        hints: Next steps for known errors: pairs of a regular expression, searched in the error's text
            without regard to case, and the step. The first that matches counts. If that is not enough,
            implement `accel_explain`.
        computes_otherwise: Set it if the device gives another result than other devices, and no error: pairs
            of the check of `accel verify` that shows it, and what users should know and do.
        provenance: The origin of the declaration; discovery fills it in.
    """

    name: str
    priority: int
    device_type: str
    vendor_import: str | tuple[str, ...] = ("torch",)
    accelerator: str = ""
    description: str = ""
    url: str = ""
    install_hint: str = ""
    requires: tuple[str, ...] = ()
    communication_backend: str = ""
    compile_backend: str = ""
    hardware: Hardware = Hardware()
    visibility: Visibility = Visibility()
    granted: Granted = Granted()
    in_torch: InTorch = InTorch()
    environment: Environment = Environment()
    hints: tuple[tuple[str, str], ...] = ()
    computes_otherwise: tuple[tuple[str, str], ...] = ()
    provenance: Provenance | None = None

    def _declared_by(self, provenance: Provenance) -> "Backend":
        """Return the declaration with its provenance; it was checked, and is not checked again."""
        return tuple.__new__(Backend, (*self[:-1], provenance))

    @property
    def vendor_imports(self) -> tuple[str, ...]:
        """`vendor_import` as a tuple."""
        return (self.vendor_import,) if isinstance(self.vendor_import, str) else self.vendor_import

    @property
    def distribution(self) -> str:
        """The name of the distribution that declares this backend; empty if it is not known."""
        return self.provenance.distribution if self.provenance else ""


#: The records of a declaration, by their fields' names.
RECORDS: dict[str, Any] = {n: v for n, v in Backend._field_defaults.items() if hasattr(v, "_fields")}

_unchecked = Backend.__new__


def _checked(kind: type[Backend], *values: Any, **named: Any) -> Backend:
    backend = _unchecked(kind, *values, **named)
    if isinstance(backend.vendor_import, str):
        return backend._replace(vendor_import=(backend.vendor_import,))
    if faults := [*_faults(backend)]:
        raise InvalidBackendError(f"backend {shown(backend.name)}: {'; '.join(faults)}")
    return backend


# A named tuple that is checked: a frozen dataclass of twenty fields takes a millisecond of each first choice.
Backend.__new__ = functools.wraps(_unchecked)(_checked)  # type: ignore[assignment, method-assign]
Backend._make = classmethod(lambda kind, values: kind(*values))  # type: ignore[assignment, method-assign]


def decode_backend(given: Mapping[str, Any]) -> Backend:
    """Return the declaration with these fields: `backend._asdict()`, as JSON gives them."""
    values = {name: _tuples(value) for name, value in given.items()}
    records = {name: record._make(values[name]) for name, record in RECORDS.items()}
    return Backend(**{**values, **records, "provenance": Provenance(*values["provenance"])})


def _tuples(value: object) -> Any:
    """Lists, as which tuples come through JSON, as tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def is_unknown_field(error: BaseException) -> bool:
    """Whether the error comes from a declaration with a field that this accel-core does not know."""
    kinds = (Backend, *map(type, RECORDS.values()))
    made = tuple(f"{kind.__name__}.__new__() got an unexpected keyword argument" for kind in kinds)
    changed = "Got unexpected field names"  # by `_replace`: a ValueError, and from 3.13 on a TypeError
    return isinstance(error, (TypeError, ValueError)) and str(error).startswith((*made, changed))


# --- Faults of a declaration ---------------------------------------------------------------------------

#: A valid value of each field: its default, unless that does not show the field's type.
_USUAL: dict[str, Any] = {
    "name": "npu", "priority": 0, "device_type": "npu",
    **Backend._field_defaults, "provenance": Provenance("", ""),
}  # fmt: skip
#: The limit keeps priorities printable.
_LARGEST = 10**9


def _faults(backend: Backend) -> Iterator[str]:
    """Every fault of the declaration, in the order of its fields."""
    for field, usual in _USUAL.items():
        value: Any = getattr(backend, field)
        if field in RECORDS and type(value) is type(usual):
            for name, item, one in zip(value._fields, value, usual, strict=True):
                if item is not one:
                    yield from _faults_of(f"{field}.{name}", item, one)
        elif value is not Backend._field_defaults.get(field, usual):
            yield from _faults_of(field, value, usual)
    if backend.vendor_import == ():
        yield "vendor_import names no module, expected e.g. 'torch_npu'"


def _faults_of(name: str, value: Any, usual: Any) -> Iterator[str]:
    """Faults of one field: another type than that of its usual value, or another form."""
    # Not isinstance, to which True is an int.
    pairs = name in ("hints", "computes_otherwise")
    if type(value) is not type(usual) or not (pairs or _holds_text(value)):
        kind = "a tuple of str" if type(usual) is tuple else type(usual).__name__
        expected = "a tuple of pairs of str" if pairs else kind
        yield f"{name} {shown(value)} is {type(value).__name__}, expected {expected}"
    elif name in _FORMS and value != usual:
        fits, expected = _FORMS[name]
        for item in value if isinstance(value, tuple) else (value,):
            if not fits(item):
                yield f"{name} {shown(item)} is malformed, expected {expected}"


def _holds_text(value: object) -> bool:
    """Whether a tuple holds nothing but texts."""
    return not isinstance(value, tuple) or {*map(type, value)} <= {str}


# Predicates rather than regular expressions: every process that chooses declares two backends at least,
# and compiling patterns would cost more than all the rest of it.


def _is_word(text: str) -> bool:
    return text.isascii() and text.isidentifier()


def is_device_type(text: str) -> bool:
    """Whether torch could call a device so."""
    return bool(text) and _is_word(text) and text == text.lower() and text[0] != "_"


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
    """Whether a launcher may forward all variables with this prefix; a shorter one would match too many."""
    return len(text) > 2 and len(text.strip("_")) > 1 and _is_word(text)


def _is_pair(row: object) -> bool:
    return isinstance(row, tuple) and [*map(type, row)] == [str, str]


#: What each value, or each item of it, must look like, and that in words; the default fits too.
_FORMS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "name": (lambda text: all(map(is_device_type, text.split("."))), "e.g. 'npu'"),
    "priority": (lambda number: abs(number) <= _LARGEST, f"a number from -{_LARGEST} to {_LARGEST}"),
    "device_type": (is_device_type, "e.g. 'npu'"),
    "vendor_import": (_is_module, "e.g. 'torch_npu'"),
    "accelerator": (_is_object, "e.g. 'accel_npu.accelerator:NPUAccelerator'"),
    "hardware.nodes": (_is_node, "e.g. '/dev/davinci[0-9]*'"),
    "hardware.shared_nodes": (_is_node, "e.g. '/dev/dri/renderD*'"),
    "hardware.pci_ids": (_is_pci, "e.g. '10de/03'"),
    "hardware.driver_file": (_is_node, "e.g. '/proc/driver/nvidia/version'"),
    "visibility.variables": (_is_word, "e.g. 'ASCEND_RT_VISIBLE_DEVICES'"),
    "visibility.filters": (_is_word, "e.g. 'ROCR_VISIBLE_DEVICES'"),
    "visibility.grammar": (GRAMMARS.__contains__, f"one of {', '.join(GRAMMARS)}"),
    "granted.ray_noset": (_is_word, "e.g. 'RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES'"),
    "in_torch.builds": (TORCH_BUILDS.__contains__, f"one of {', '.join(TORCH_BUILDS)}"),
    "in_torch.impersonates": (is_device_type, "e.g. 'cuda'"),
    "in_torch.wrapped_by": (_is_word, "e.g. 'spaces'"),
    "in_torch.taken_over_by": (_is_word, "e.g. 'torch_xmlir'"),
    "environment.forward": (is_variable_prefix, EXPECTED_PREFIX.removeprefix("expected ")),
    "environment.set": (
        lambda text: "=" in text and _is_word(text.partition("=")[0]),
        "e.g. 'PT_HPU_LAZY_MODE=0'",
    ),
    # Their patterns are compiled when an error is there to be explained.
    "hints": (_is_pair, r"e.g. ('lib(cuda)\.so', 'install the driver')"),
    "computes_otherwise": (_is_pair, "e.g. ('compute.numbers.nan_and_infinity', 'clamp loses NaN')"),
}
