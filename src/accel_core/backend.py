"""Declare backends. A `Backend` is a plugin's frozen declaration of one backend.

A declaration holds strings and numbers only, so that listing, ranking and diagnosing
backends need neither torch nor the vendor's package. Related fields form a record:
`Hardware`, `Visibility`, `ResourceRequest`, `TorchIntegration`, `Environment`.
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

#: Builds of torch that a backend can require; the names are those in `torch.version`.
TORCH_BUILDS = ("cuda", "hip", "xpu")
#: Grammars of visible-devices variables; `hardware.visible_devices` parses each of them.
GRAMMARS = (
    "cuda", "ascending", "modules", "mlu", "level-zero", "indices", "ranges",
)  # fmt: skip


@dataclass(frozen=True, order=True)
class Provenance:
    """The distribution and the entry point that register a backend or another plugin.

    The built-in backends of accel-core have no entry point.
    """

    distribution: str
    version: str
    #: The entry point's name, such as `"npu"`.
    entry_point: str = ""
    #: The object that the entry point refers to, such as `"package.module:object"`.
    value: str = ""

    @property
    def name(self) -> str:
        """The entry point's name, as `EntryPoint.name` of `importlib.metadata`."""
        return self.entry_point

    @property
    def module(self) -> str:
        """The module that the entry point refers to, or an empty string if there is none."""
        module, _ = self._reference()
        return module

    @property
    def top(self) -> str:
        """The top-level package of the entry point's module."""
        return self.module.partition(".")[0]

    def load(self) -> Any:
        """Import and return the object that the entry point refers to.

        The value is `"package.module"` or `"package.module:object"`. Errors raised by
        the import propagate.
        """
        # `metadata.EntryPoint.load` fails without a reason at a value like "accel npu".
        module, attributes = self._reference()
        loaded = importlib.import_module(module)
        for attribute in attributes:
            loaded = getattr(loaded, attribute)
        return loaded

    def _reference(self) -> tuple[str, list[str]]:
        """Split the entry point's value, without its extras, into a module and
        attributes.
        """
        # For example "package.module:object [extra]".
        reference, _, _extras = self.value.partition("[")
        module, _, attribute_path = reference.partition(":")
        attributes = attribute_path.strip().split(".") if attribute_path else []
        return module.strip(), [name for name in attributes if name]

    def __str__(self) -> str:
        return one_line(f"{self.distribution} {self.version}")


@dataclass(frozen=True)
class ProbeResult:
    """The result of `accel_probe`: whether the backend is usable, the reason, and the
    user's next step.
    """

    usable: bool
    #: One clause without the backend's name, such as "torch.cuda is overridden by
    #: torch_supa".
    reason: str = ""
    #: The user's next step: a command or a setting.
    hint: str = ""
    _: KW_ONLY
    #: The number of devices, or `None` if the probe does not count devices.
    devices: int | None = None
    #: Whether this backend leaves the device, which may be present, to another backend.
    deferred: bool = False


@dataclass(frozen=True)
class Hardware:
    """The signs by which a device is detected without torch and without the vendor's package.

    Fields:
        name: The human-readable name of the device, in the singular, such as `"NVIDIA
            GPU"`.
        nodes: Glob patterns of the device nodes that the driver creates, such as
            `"/dev/davinci[0-9]*"`.
        shared_nodes: Glob patterns of device nodes that other vendors' devices have
            too, such as `"/dev/dri/renderD*"`. The existence of such nodes proves
            nothing. If such nodes are missing, a container was started without its
            devices.
        pci_ids: The device's PCI ids: `"vendor"`, `"vendor:device"` or `"vendor/class"`
            in lower-case hexadecimal, such as `"10de/03"`.
        driver_file: A file or folder that exists only while the driver is loaded, such
            as `"/sys/module/biren"`.
        driver_step: The user's next step if the device is on the bus but its driver is
            not loaded.
        platforms: The systems that can have the device, if only some can: a system,
            such as `"linux"`, or a system and a machine, such as `"darwin-arm64"`.
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
    """The environment variables that restrict which devices a process sees.

    Fields:
        variables: The names of the variables in order of precedence, highest first,
            such as `("ACME_VISIBLE_DEVICES",)`.
        filters: The names of variables that are applied before `variables`, one after
            another, such as `("ROCR_VISIBLE_DEVICES",)`.
        grammar: The grammar of the variables' values: one of `GRAMMARS`.
    """

    variables: tuple[str, ...] = ()
    _: KW_ONLY
    filters: tuple[str, ...] = ()
    grammar: str = "indices"


@dataclass(frozen=True, kw_only=True)
class ResourceRequest:
    """The ways to request a device from container runtimes and schedulers.

    Fields:
        docker: Options of `docker run`, such as `"--gpus all"` or
            `"--device /dev/acme0"`.
        kubernetes: The resource name in Kubernetes, such as `"nvidia.com/gpu"`.
        slurm: The resource name in Slurm's `--gres`, such as `"gpu"`.
        apptainer: Options of `apptainer exec`, such as `"--nv"`.
        podman: Options of `podman run` if Docker's options do not work with Podman,
            such as `"--device nvidia.com/gpu=all"`.
        ray: The resource name in Ray, such as `"NPU"`.
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
    """The way in which a device is integrated into torch, and the packages that change that.

    Fields:
        builds: The torch builds that support the device, from `TORCH_BUILDS`, if torch
            must be built for the device.
        same_version: The distributions whose major and minor version must equal
            torch's, such as `("torch-npu",)`.
        private_use1: Whether the device uses torch's PrivateUse1 slot. A process has
            one such slot.
        takes_over: The torch namespace of another device that the vendor's package
            takes over; `torch_supa` takes over `"cuda"`.
        wrapped_by: Packages that wrap torch's functions for this device but keep using
            the device. Any other package that replaces functions of
            `torch.<device_type>` counts as having taken over the namespace.
        taken_over_by: Packages that redirect torch's functions for this device to
            another device.
    """

    builds: tuple[str, ...] = ()
    same_version: tuple[str, ...] = ()
    private_use1: bool = False
    takes_over: str = ""
    wrapped_by: tuple[str, ...] = ()
    taken_over_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Environment:
    """The environment variables to forward to, or to set for, the processes of a job.

    Fields:
        forward: Prefixes of at least three characters, such as `"HCCL_"`. A launcher
            forwards every variable with such a prefix to other nodes.
        defaults: Variables that the vendor recommends, as `"NAME=value"`. Launchers set
            the variables for their ranks, and `activate()` sets them in its process.
    """

    forward: tuple[str, ...] = ()
    _: KW_ONLY
    defaults: tuple[str, ...] = ()


@dataclass(frozen=True)
class Backend:
    """A plugin's declaration of one kind of accelerator.

    Raises `InvalidBackendError`, which lists every error in the declaration, if a field
    is malformed.

    Fields:
        name: The name that users write in `DS_ACCELERATOR`, in lower case, such as
            `"npu"` or `"xpu.external"`.
        priority: The backend's rank among the usable backends, highest first.
            First-party plugins use 0 to 900.
        device_type: torch's device type, as in `torch.device(device_type)`.
        vendor_import: The module to import after torch, if a package other than torch
            adds the device to torch. Of several modules, the first that is installed
            is imported.
        accelerator: The accelerator class, as `"module:Class"`, if the device needs its
            own class. If empty, `TorchAccelerator` is used.
        description: A human-readable description in one line.
        url: A page with more information for users of this backend.
        install_hint: The next step if the vendor import is missing, such as
            `"pip install torch-npu"`, or `"accel setup npu"` for a plugin whose table
            accel-tools reads.
        requires: The distributions that must be installed, as PEP 508 requirements such
            as `"torch>=2.6"`.
        communication_backend: The torch.distributed backend. If empty, the backend that
            torch registers for the device is used, or `"staged"` if there is none.
        compile_backend: The torch.compile backend. If empty, `"inductor"` is used if it
            supports the device, and otherwise `"aot_eager"`.
        hardware: The signs by which the device is detected without its package, as a
            `Hardware` record.
        visibility: The variables that hide devices, as a `Visibility` record.
        request: How to request the device from container runtimes and schedulers, as a
            `ResourceRequest` record.
        torch_integration: How the device is integrated into torch, as a
            `TorchIntegration` record.
        environment: Variables to forward to ranks, or to set for ranks, as an
            `Environment` record.
        hints: Next steps for known errors. Each is a pair of a regular expression,
            which is searched in the error's text without regard to case, and the next
            step. The first match applies. For anything more complex, implement
            `accel_explain`.
        known_differences: Cases in which the device silently computes a different
            result than other devices. Each is a pair: the check of `accel verify` that
            detects the difference, and what users should know and do.
        provenance: The distribution and entry point from which the declaration comes.
            Discovery sets this field.
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
            # A plain assignment fails, because the dataclass is frozen.
            object.__setattr__(self, "vendor_import", (self.vendor_import,))
        faults = list(_faults(self))
        if faults:
            name = short_repr(self.name)
            raise InvalidBackendError(f"backend {name}: {'; '.join(faults)}")

    @property
    def vendor_imports(self) -> tuple[str, ...]:
        """The modules of `vendor_import`, always as a tuple, even if the field was
        declared as a string.
        """
        assert isinstance(self.vendor_import, tuple)
        return self.vendor_import

    @property
    def distribution(self) -> str:
        """The name of the distribution that declares this backend, or an empty string
        if unknown.
        """
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
    """Build a `Backend` from `document`, the dictionary that `dataclasses.asdict`
    returned for that backend.

    The document may have passed through JSON, which turns tuples into lists.
    """
    values = {name: _lists_to_tuples(value) for name, value in document.items()}
    for name, record in {**RECORDS, "provenance": Provenance}.items():
        if values[name] is not None:
            values[name] = record(**values[name])
    return Backend(**values)


def _lists_to_tuples(value: Any) -> Any:
    """Return `value` with each list converted to a tuple, because JSON has no tuples."""
    if isinstance(value, list):
        return tuple(_lists_to_tuples(item) for item in value)
    if isinstance(value, dict):
        return {name: _lists_to_tuples(item) for name, item in value.items()}
    return value


def is_unknown_field_error(error: BaseException) -> bool:
    """Return whether `error` was raised because a backend declaration sets a field
    unknown to this accel-core.

    Python's `TypeError` has no attribute for the field. Its text is therefore searched
    for the two names that it quotes: `Backend.__init__() got an unexpected keyword
    argument 'color'`.
    """
    if not isinstance(error, TypeError):
        return False
    # For example: "Backend.__init__() got an unexpected keyword argument 'color'"
    quoted = re.match(
        r"(?P<record>\w+)\.__init__\(\).*?'(?P<argument>\w+)'", str(error)
    )
    if quoted is None:
        return False
    records: list[type[Any]] = [Backend, *RECORDS.values()]
    for record in records:
        if record.__name__ == quoted["record"]:
            known_fields = [field.name for field in fields(record)]
            return quoted["argument"] not in known_fields
    return False


# --- Faults of a declaration ----------------------------------------------------------

#: The largest absolute priority. The limit keeps priorities printable.
_MAX_PRIORITY = 10**9
#: The types of the fields whose type does not follow from a default.
_FIELD_TYPES = {
    "name": str,
    "priority": int,
    "device_type": str,
    "provenance": Provenance,
}
#: The fields that hold pairs of strings.
_PAIR_FIELDS = ("hints", "known_differences")


def _faults(backend: Backend) -> Iterator[str]:
    """Yield a message for each error in the declaration, in field order."""
    for field in fields(backend):
        value = getattr(backend, field.name)
        if field.name in RECORDS and type(value) is RECORDS[field.name]:
            yield from _faults_of_record(field.name, value)
        else:
            yield from _faults_of_field(field.name, value, field.default)
    if backend.vendor_import == ():
        yield "vendor_import is empty, expected a module such as 'torch_npu'"


def _faults_of_record(name: str, record: Any) -> Iterator[str]:
    for field in fields(record):
        value = getattr(record, field.name)
        yield from _faults_of_field(f"{name}.{field.name}", value, field.default)


def _faults_of_field(name: str, value: Any, default: Any) -> Iterator[str]:
    """Yield a message for each error in one field: a value of the wrong type or in the
    wrong form.
    """
    if default is not MISSING and value is default:  # A default is always valid.
        return
    expected_type = _FIELD_TYPES.get(name, type(default))
    if not _is_of_type(name, value, expected_type):
        actual = type(value).__name__
        expected = _describe_type(name, expected_type)
        yield f"{name} {short_repr(value)} is {actual}, expected {expected}"
        return
    form = _FORMS.get(name)
    if form is None or value == default:
        return
    # The form of a tuple field applies to each of its items.
    items = value if isinstance(value, tuple) else (value,)
    for item in items:
        if not form.accepts(item):
            yield f"{name} {short_repr(item)} is malformed, expected {form.expected}"


def _is_of_type(name: str, value: Any, expected: type[Any]) -> bool:
    # Not isinstance, because True is an int.
    if type(value) is not expected:
        return False
    if expected is tuple and name not in _PAIR_FIELDS:
        return all(type(item) is str for item in value)
    return True


def _describe_type(name: str, expected: type[Any]) -> str:
    if name in _PAIR_FIELDS:
        return "a tuple of pairs of str"
    if expected is tuple:
        return "a tuple of str"
    return expected.__name__


class _Form(NamedTuple):
    """The form that a field's value, or each item of its tuple, must have."""

    accepts: Callable[[Any], object]
    #: The form in words.
    expected: str


#: Regular expressions of a name in Python or in the environment, of a module, and of a
#: device type in torch.
_WORD = r"[A-Za-z_][A-Za-z0-9_]*"
_MODULE = rf"{_WORD}(\.{_WORD})*"
_DEVICE_TYPE = r"[a-z][a-z0-9_]*"
#: An absolute path or glob pattern, without "**", which would walk whole file systems.
_NODE = r"/(?!/)(?!.*\*\*)(?s:.+)"
_PCI_ID = r"[0-9a-f]{4}(:[0-9a-f]{4})?(/[0-9a-f]{2})?"
_ASSIGNMENT = rf"{_WORD}=(?s:.*)"


def _pattern(pattern: str, expected: str) -> _Form:
    return _Form(re.compile(pattern).fullmatch, expected)


def _one_of(values: tuple[str, ...]) -> _Form:
    return _Form(values.__contains__, f"one of {', '.join(values)}")


def is_device_type(text: str) -> bool:
    """Return whether `text` can be a torch device type."""
    return re.fullmatch(_DEVICE_TYPE, text) is not None


def is_variable_prefix(text: str) -> bool:
    """Return whether a launcher may forward all variables with this prefix.

    The prefix must have at least three characters, because a shorter prefix would match
    too many variables.
    """
    is_word = re.fullmatch(_WORD, text) is not None
    # Underscores alone identify no vendor.
    significant = text.strip("_")
    return is_word and len(text) >= 3 and len(significant) >= 2


def _is_valid_priority(number: int) -> bool:
    return abs(number) <= _MAX_PRIORITY


def _is_pair_of_strings(value: object) -> bool:
    if not isinstance(value, tuple) or len(value) != 2:
        return False
    return all(type(item) is str for item in value)


_PREFIX = _Form(
    is_variable_prefix, "a prefix of three characters or more, such as 'HCCL_'"
)
#: The end of a message about a prefix that `is_variable_prefix` rejects.
EXPECTED_PREFIX = f"expected {_PREFIX.expected}"

#: The required form of each field that has one. Each field's default is accepted too.
_FORMS = {
    "name": _pattern(rf"{_DEVICE_TYPE}(\.{_DEVICE_TYPE})*", "e.g. 'npu'"),
    "priority": _Form(
        _is_valid_priority, f"a number from -{_MAX_PRIORITY} to {_MAX_PRIORITY}"
    ),
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
    # The patterns of hints are compiled only when there is an error to explain.
    "hints": _Form(
        _is_pair_of_strings, r"e.g. ('lib(cuda)\.so', 'install the driver')"
    ),
    "known_differences": _Form(
        _is_pair_of_strings,
        "e.g. ('compute.numbers.nan_and_infinity', 'clamp loses NaN')",
    ),
}
