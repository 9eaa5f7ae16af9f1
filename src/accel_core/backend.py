"""`Backend`: a plugin's frozen declaration of one backend.

It holds strings and numbers only, so that listing, ranking and diagnosing need neither
torch nor the vendor's package. Fields of one subject form a record: `Hardware`,
`Visibility`, `ResourceRequest`, `TorchIntegration`, `Environment`.
"""

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, MISSING, dataclass, fields
from typing import Any, NamedTuple

from accel_core.errors import InvalidBackendError
from accel_core.text import one_line, short_repr

#: The entry-point group that discovery reads.
ENTRY_POINT_GROUP = "accel.backends"
#: pluggy's project name.
PROJECT = "accel"

#: Builds of torch that a backend can require, by their names in `torch.version`.
TORCH_BUILDS = ("cuda", "hip", "xpu")
#: Grammars of visible-devices variables, which `hardware.visible_devices` parses.
GRAMMARS = (
    "cuda", "ascending", "modules", "mlu", "level-zero", "indices", "ranges",
)  # fmt: skip


@dataclass(frozen=True, order=True)
class Provenance:
    """The distribution and the entry point that register a backend, or another plugin.

    The backends that accel-core itself contains have no entry point.
    """

    distribution: str
    version: str
    #: The entry point's name: `"npu"`.
    entry_point: str = ""
    #: The object that the entry point refers to: `"package.module:object"`.
    value: str = ""

    @property
    def name(self) -> str:
        """The entry point's name, as `importlib.metadata` calls it."""
        return self.entry_point

    @property
    def module(self) -> str:
        """The module that the entry point's value names; empty if it names none."""
        module, _ = self._reference()
        return module

    @property
    def top(self) -> str:
        """The top-level package of that module."""
        return self.module.partition(".")[0]

    def load(self) -> Any:
        """Import and return the module or object that the value names:
        `"package.module"`, `"package.module:object"`.
        """
        # `metadata.EntryPoint.load` fails without a reason at a value like "accel npu".
        module, attributes = self._reference()
        loaded = importlib.import_module(module)
        for attribute in attributes:
            loaded = getattr(loaded, attribute)
        return loaded

    def _reference(self) -> tuple[str, list[str]]:
        """Split the value, without its extras, into a module and attributes."""
        reference, _, _ = self.value.partition("[")
        module, _, attributes = reference.partition(":")
        return module.strip(), list(filter(None, attributes.strip().split(".")))

    def __str__(self) -> str:
        return one_line(f"{self.distribution} {self.version}")


@dataclass(frozen=True)
class ProbeResult:
    """The result of `accel_probe`: whether the backend is usable, why, and the user's
    next step.
    """

    usable: bool
    #: One clause, without the backend's name: "torch.cuda is overridden by
    #: torch_supa".
    reason: str = ""
    #: The next step: a command or a setting.
    hint: str = ""
    _: KW_ONLY
    #: Number of devices, if the probe counts them.
    devices: int | None = None
    #: The device may be present, but this backend leaves it to another backend.
    deferred: bool = False


@dataclass(frozen=True)
class Hardware:
    """Signs of the device that are visible without torch and without the vendor's
    package.

    Fields:
        name: The device's name for people, in the singular: `"NVIDIA GPU"`.
        nodes: Set it if the driver makes device nodes: glob patterns,
            `"/dev/davinci[0-9]*"`.
        shared_nodes: Set it if nodes of the device may be another maker's too,
            `"/dev/dri/renderD*"`: if they exist, that proves nothing; if not, a
            container lacks its devices.
        pci_ids: Set it if the device is on the PCI bus: `"vendor"`, `"vendor:device"`
            or `"vendor/class"` in lower-case hexadecimal, `"10de/03"`.
        driver_file: A file or folder that only a loaded driver brings:
            `"/sys/module/biren"`.
        driver_step: The next step if the device is on the bus and the driver is not
            loaded.
        platforms: Set it if only some systems have it: `"linux"`, or with the machine,
            `"darwin-arm64"`.
    """

    name: str = ""
    _: KW_ONLY
    nodes: tuple[str, ...] = ()
    shared_nodes: tuple[str, ...] = ()
    pci_ids: tuple[str, ...] = ()
    driver_file: str = ""
    driver_step: str = ""
    platforms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Visibility:
    """The environment variables that say which devices a process sees.

    Fields:
        variables: Their names, the one with the highest precedence first:
            `("ACME_VISIBLE_DEVICES",)`.
        filters: Variables that apply before those, one after the other:
            `("ROCR_VISIBLE_DEVICES",)`.
        grammar: The form of their values: one of `GRAMMARS`.
    """

    variables: tuple[str, ...] = ()
    _: KW_ONLY
    filters: tuple[str, ...] = ()
    grammar: str = "indices"


@dataclass(frozen=True, kw_only=True)
class ResourceRequest:
    """Words with which containers and schedulers give a process the device.

    Fields:
        docker: Options of `docker run`: `"--gpus all"`, `"--device /dev/acme0"`.
        kubernetes: The resource's name: `"nvidia.com/gpu"`.
        slurm: The name in `--gres`: `"gpu"`.
        apptainer: Options of `apptainer exec`: `"--nv"`.
        podman: Options of `podman run`, if Docker's do not work there:
            `"--device nvidia.com/gpu=all"`.
        ray: The resource's name: `"NPU"`.
        ray_noset: The variable that keeps Ray from setting the visible-devices
            variable.
    """

    docker: str = ""
    kubernetes: str = ""
    slurm: str = ""
    apptainer: str = ""
    podman: str = ""
    ray: str = ""
    ray_noset: str = ""


@dataclass(frozen=True, kw_only=True)
class TorchIntegration:
    """The device's place in torch, and its relation to other vendors' packages.

    Fields:
        builds: Set it if torch must be built for the device: any of `TORCH_BUILDS`.
        same_version: Set it if a distribution must have torch's major and minor
            version: `("torch-npu",)`.
        private_use1: The device is torch's renamed PrivateUse1, of which a process has
            one.
        takes_over: Set it if the vendor takes over another torch namespace
            (`torch_supa`: `"cuda"`).
        wrapped_by: Packages that wrap torch's own functions and keep the same device.
            Any other package that replaces functions of torch's own
            `torch.<device_type>` counts as having taken it over.
        taken_over_by: Packages that put another device behind torch's own functions.
    """

    builds: tuple[str, ...] = ()
    same_version: tuple[str, ...] = ()
    private_use1: bool = False
    takes_over: str = ""
    wrapped_by: tuple[str, ...] = ()
    taken_over_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Environment:
    """Environment variables of a job's processes.

    Fields:
        forward: Prefixes of the variables that a launcher forwards to other nodes,
            three characters or more: `"HCCL_"`. Every variable with such a prefix is
            forwarded.
        defaults: Variables that the vendor recommends, `"NAME=value"`: ranks and
            `activate()` set them.
    """

    forward: tuple[str, ...] = ()
    _: KW_ONLY
    defaults: tuple[str, ...] = ()


@dataclass(frozen=True)
class Backend:
    """One kind of accelerator, as its plugin declares it.

    Raises `InvalidBackendError`, which lists every fault, if a field is malformed.

    Fields:
        name: The name that users write in `DS_ACCELERATOR`, in lower case: `"npu"`,
            `"xpu.external"`.
        priority: Rank among the usable backends, highest first. First-party plugins use
            0 to 900.
        device_type: torch's device type, as in `torch.device(device_type)`.
        vendor_import: Set it if a package other than torch brings the device into
            torch: the module to import. If you give several, the first that is
            installed is imported.
        accelerator: Set it if the device needs its own class: `"module:Class"`. Empty:
            `TorchAccelerator`.
        description: One line for people.
        url: A page with more for users of this backend.
        install_hint: The next step if the vendor import is missing:
            `"pip install torch-npu"`, or `"accel setup npu"` for a plugin whose table
            accel-tools reads.
        requires: Set it if distributions must be installed, as PEP 508 requirements:
            `"torch>=2.6"`.
        communication_backend: torch.distributed's backend. Empty: torch's for the
            device, else `"staged"`.
        compile_backend: torch.compile's backend. Empty: `"inductor"` if it supports it,
            else `"aot_eager"`.
        hardware: Signs of the device, visible without its package: `Hardware`.
        visibility: The variables that hide it: `Visibility`.
        request: Words with which containers and schedulers give it: `ResourceRequest`.
        torch_integration: Its place in torch, and its relation to other packages: `TorchIntegration`.
        environment: Variables to forward to ranks, or to set for them: `Environment`.
        hints: Next steps for known errors: pairs of a regular expression, searched in
            the error's text without regard to case, and the step. The first that
            matches counts. If that is not enough, implement `accel_explain`.
        known_differences: Set it if the device gives another result than other
            devices, and no error: pairs of the check of `accel verify` that shows it,
            and what users should know and do.
        provenance: The origin of the declaration; discovery fills it in.
    """

    name: str
    priority: int
    device_type: str
    _: KW_ONLY
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
    request: ResourceRequest = ResourceRequest()
    torch_integration: TorchIntegration = TorchIntegration()
    environment: Environment = Environment()
    hints: tuple[tuple[str, str], ...] = ()
    known_differences: tuple[tuple[str, str], ...] = ()
    provenance: Provenance | None = None

    def __post_init__(self) -> None:
        if isinstance(self.vendor_import, str):
            object.__setattr__(self, "vendor_import", (self.vendor_import,))
        faults = list(_faults(self))
        if faults:
            name = short_repr(self.name)
            raise InvalidBackendError(f"backend {name}: {'; '.join(faults)}")

    @property
    def vendor_imports(self) -> tuple[str, ...]:
        """`vendor_import`, which is a tuple once the declaration exists."""
        assert isinstance(self.vendor_import, tuple)
        return self.vendor_import

    @property
    def distribution(self) -> str:
        """The name of the distribution that declares this backend; empty if unknown."""
        if self.provenance is None:
            return ""
        return self.provenance.distribution


#: The records of a declaration, by the field that holds each.
RECORDS: dict[str, type[Any]] = {
    "hardware": Hardware,
    "visibility": Visibility,
    "request": ResourceRequest,
    "torch_integration": TorchIntegration,
    "environment": Environment,
}


def decode_backend(document: Mapping[str, Any]) -> Backend:
    """Return the declaration that `dataclasses.asdict` turned into `document`, also if
    the document has passed through JSON.
    """
    values = {name: _tuples(value) for name, value in document.items()}
    for name, record in {**RECORDS, "provenance": Provenance}.items():
        if values[name] is not None:
            values[name] = record(**values[name])
    return Backend(**values)


def _tuples(value: Any) -> Any:
    """Return `value` with each list, which is JSON's form of a tuple, as a tuple."""
    if isinstance(value, list):
        return tuple(_tuples(item) for item in value)
    if isinstance(value, dict):
        return {name: _tuples(item) for name, item in value.items()}
    return value


def is_unknown_field(error: BaseException) -> bool:
    """Whether a declaration raised `error` because this accel-core lacks one of its
    fields.

    Python's `TypeError` carries no field, so its text is searched for the two names
    that it quotes: `Backend.__init__() got an unexpected keyword argument 'colour'`.
    """
    if not isinstance(error, TypeError):
        return False
    quoted = re.match(r"(\w+)\.__init__\(\).*?'(\w+)'", str(error))
    if quoted is None:
        return False
    records: list[type[Any]] = [Backend, *RECORDS.values()]
    for record in records:
        if record.__name__ == quoted[1]:
            return quoted[2] not in [field.name for field in fields(record)]
    return False


# --- Faults of a declaration ----------------------------------------------------------

#: The limit keeps priorities printable.
_LARGEST = 10**9
#: The types of the fields whose default does not show them.
_TYPES = {"name": str, "priority": int, "device_type": str, "provenance": Provenance}
#: The fields that hold pairs of text.
_PAIRS = ("hints", "known_differences")


def _faults(backend: Backend) -> Iterator[str]:
    """Yield every fault of the declaration, in the order of its fields."""
    for field in fields(backend):
        value = getattr(backend, field.name)
        if field.name in RECORDS and type(value) is RECORDS[field.name]:
            yield from _faults_of_record(field.name, value)
        else:
            yield from _faults_of(field.name, value, field.default)
    if backend.vendor_import == ():
        yield "vendor_import names no module, expected e.g. 'torch_npu'"


def _faults_of_record(name: str, record: Any) -> Iterator[str]:
    for field in fields(record):
        value = getattr(record, field.name)
        yield from _faults_of(f"{name}.{field.name}", value, field.default)


def _faults_of(name: str, value: Any, default: Any) -> Iterator[str]:
    """Yield the faults of one field: a value of another type, or of another form."""
    if default is not MISSING and value is default:
        return
    expected = _TYPES.get(name, type(default))
    if not _is_of_type(name, value, expected):
        kind = _type_in_words(name, expected)
        yield f"{name} {short_repr(value)} is {type(value).__name__}, expected {kind}"
        return
    form = _FORMS.get(name)
    if form is None or value == default:
        return
    items = value if isinstance(value, tuple) else (value,)
    for item in items:
        if not form.accepts(item):
            yield f"{name} {short_repr(item)} is malformed, expected {form.expected}"


def _is_of_type(name: str, value: Any, expected: type[Any]) -> bool:
    # Not isinstance, because True is an int.
    if type(value) is not expected:
        return False
    if expected is tuple and name not in _PAIRS:
        return all(type(item) is str for item in value)
    return True


def _type_in_words(name: str, expected: type[Any]) -> str:
    if name in _PAIRS:
        return "a tuple of pairs of str"
    if expected is tuple:
        return "a tuple of str"
    return expected.__name__


class _Form(NamedTuple):
    """The form that a value, or each item of a tuple, must have."""

    accepts: Callable[[Any], object]
    #: The form in words.
    expected: str


#: A name in Python and in the environment, a module, and torch's name of a device.
_WORD = r"[A-Za-z_][A-Za-z0-9_]*"
_MODULE = rf"{_WORD}(\.{_WORD})*"
_DEVICE_TYPE = r"[a-z][a-z0-9_]*"
#: An absolute path or glob pattern; "**" would walk whole file systems.
_NODE = r"/(?!/)(?!.*\*\*)(?s:.+)"
_PCI_ID = r"[0-9a-f]{4}(:[0-9a-f]{4})?(/[0-9a-f]{2})?"
_ASSIGNMENT = rf"{_WORD}=(?s:.*)"


def _pattern(pattern: str, expected: str) -> _Form:
    return _Form(re.compile(pattern).fullmatch, expected)


def _one_of(values: tuple[str, ...]) -> _Form:
    return _Form(values.__contains__, f"one of {', '.join(values)}")


def is_device_type(text: str) -> bool:
    """Whether `text` can be a device type of torch."""
    return re.fullmatch(_DEVICE_TYPE, text) is not None


def is_variable_prefix(text: str) -> bool:
    """Whether a launcher may forward all variables with this prefix; a shorter one
    would match too many.
    """
    is_word = re.fullmatch(_WORD, text) is not None
    return is_word and len(text) >= 3 and len(text.strip("_")) >= 2


def _is_small(number: int) -> bool:
    return abs(number) <= _LARGEST


def _is_pair(row: object) -> bool:
    if not isinstance(row, tuple) or len(row) != 2:
        return False
    return all(type(item) is str for item in row)


_PREFIX = _Form(
    is_variable_prefix, "a prefix of three characters or more, such as 'HCCL_'"
)
#: The end of a message about a prefix that `is_variable_prefix` rejects.
EXPECTED_PREFIX = f"expected {_PREFIX.expected}"

#: The form of each field that has one; the default is accepted too.
_FORMS = {
    "name": _pattern(rf"{_DEVICE_TYPE}(\.{_DEVICE_TYPE})*", "e.g. 'npu'"),
    "priority": _Form(_is_small, f"a number from -{_LARGEST} to {_LARGEST}"),
    "device_type": _pattern(_DEVICE_TYPE, "e.g. 'npu'"),
    "vendor_import": _pattern(_MODULE, "e.g. 'torch_npu'"),
    "accelerator": _pattern(
        f"{_MODULE}:{_WORD}", "e.g. 'accel_npu.accelerator:NPUAccelerator'"
    ),
    "hardware.nodes": _pattern(_NODE, "e.g. '/dev/davinci[0-9]*'"),
    "hardware.shared_nodes": _pattern(_NODE, "e.g. '/dev/dri/renderD*'"),
    "hardware.pci_ids": _pattern(_PCI_ID, "e.g. '10de/03'"),
    "hardware.driver_file": _pattern(_NODE, "e.g. '/proc/driver/nvidia/version'"),
    "visibility.variables": _pattern(_WORD, "e.g. 'ASCEND_RT_VISIBLE_DEVICES'"),
    "visibility.filters": _pattern(_WORD, "e.g. 'ROCR_VISIBLE_DEVICES'"),
    "visibility.grammar": _one_of(GRAMMARS),
    "request.ray_noset": _pattern(
        _WORD, "e.g. 'RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES'"
    ),
    "torch_integration.builds": _one_of(TORCH_BUILDS),
    "torch_integration.takes_over": _pattern(_DEVICE_TYPE, "e.g. 'cuda'"),
    "torch_integration.wrapped_by": _pattern(_WORD, "e.g. 'spaces'"),
    "torch_integration.taken_over_by": _pattern(_WORD, "e.g. 'torch_xmlir'"),
    "environment.forward": _PREFIX,
    "environment.defaults": _pattern(_ASSIGNMENT, "e.g. 'PT_HPU_LAZY_MODE=0'"),
    # Their patterns are compiled when there is an error to explain.
    "hints": _Form(_is_pair, r"e.g. ('lib(cuda)\.so', 'install the driver')"),
    "known_differences": _Form(
        _is_pair, "e.g. ('compute.numbers.nan_and_infinity', 'clamp loses NaN')"
    ),
}
