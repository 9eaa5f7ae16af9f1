"""The base of every section of the interface: an accelerator's identity, and its
devices by index.
"""

from __future__ import annotations

import inspect
import operator
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from accel_core import errors
from accel_core.backend import Backend
from accel_core.hardware.visible_devices import parse_visible_devices
from accel_core.interface.records import DeviceProperties, read_properties
from accel_core.interface.with_block import warn_if_entered
from accel_core.torch_import import import_torch

if TYPE_CHECKING:
    import torch

    from accel_core.interface.records import DeviceCapability


#: A device of an accelerator, as `torch.types.Device`; `None` is the current device. A
#: member has two parameters for a device: `device_index`, and torch's keyword `device`.
#: The latter is not keyword-only, because that would cost every call 10 ns.
Device: TypeAlias = "int | str | torch.device | None"


class Base:
    """The base class with an accelerator's identity, and the helpers that all sections
    of the interface share.
    """

    #: The backend's name, which is the value to set for `DS_ACCELERATOR`.
    name: str
    #: The declaration that this accelerator was built from, with its provenance.
    backend: Backend
    #: Returns the accelerator of a process for a backend's name. `accel_core.current`
    #: sets this function.
    _by_name: Callable[[str], Any] | None = None
    #: `torch.accelerator` if it supports this device, or `None` otherwise.
    _torch_accelerator: Any = None

    def __init__(self, backend: Backend | None = None) -> None:
        self._torch: Any = import_torch()
        #: Whether a plugin declares this backend. Another process can then find the
        #: accelerator by the backend's name.
        self._is_declared = backend is not None
        self.backend = backend or _declaration_for_class(type(self))
        self.name = self.backend.name
        self._device_type = self._torch_device_type()
        #: The vendor's module in torch, such as `torch.npu`, or `None` if there is
        #: none.
        self.device_module: Any = None
        #: The vendor's functions that raised an error and are no longer used, with the
        #: reason.
        self.refused: dict[str, str] = {}
        #: The data types that were tried, and whether the device computes in them.
        self._dtype_trials: dict[str, bool] = {}

    @classmethod
    def _from_backend(cls, backend: Backend) -> Any:
        """Construct an accelerator for a plugin's declaration.

        The declaration is passed to the class if its constructor takes an argument.
        """
        takes_backend = bool(inspect.signature(cls).parameters)
        if takes_backend:
            return cls(backend)
        accelerator = cls()
        accelerator._is_declared = True
        accelerator.backend = backend
        accelerator.name = backend.name
        return accelerator

    @property
    def _name(self) -> str:
        """The device type as an attribute, which callers read and
        subclasses set.
        """
        return self._device_type

    @_name.setter
    def _name(self, device_type: str) -> None:
        self._device_type = device_type
        if not self._is_declared:
            self.name = device_type

    def _name_at(self, index: int | None) -> str:
        """Return the device's name in torch. Raises `InvalidDeviceError` for a negative
        index.
        """
        if index is None:
            return self._device_type
        if index < 0:
            raise errors.InvalidDeviceError(
                f"{self.name}: device index {index} is negative"
            )
        return f"{self._device_type}:{index}"

    def _unchecked_index(self, device: Any) -> int | None:
        """Return the index in `device` without checking its range, or `None` for a
        device type without an index.

        Raises `InvalidDeviceError` for a device of another accelerator and for a string
        that is not a device. Raises `InvalidArgumentError` for an argument that is not
        an index, a string or a `torch.device`.
        """
        if type(device) is int:  # the most frequent argument
            return device
        own_type = self._device_type
        example = f"{own_type}:0"
        hint = f"expected an index, a torch.device of this type or a string such as {example!r}"
        try:
            if isinstance(device, str):
                if device.isdecimal():  # as in os.environ["LOCAL_RANK"]
                    return int(device)
                device = self._torch.device(device)
            if not isinstance(device, self._torch.device):
                return operator.index(device)
        except RuntimeError:  # from torch.device(...)
            raise errors.InvalidDeviceError(
                f"{self.name}: {device!r} is not a device: {hint}"
            ) from None
        except TypeError:  # from operator.index(...)
            raise errors.InvalidArgumentError(
                f"{self.name}: {device!r} ({type(device).__name__}) is not a device: {hint}"
            ) from None
        if device.type != own_type:
            raise errors.InvalidDeviceError(
                f"{self.name}: {device} is not a device of type {own_type!r}: {hint}"
            )
        return device.index

    @property
    def device_type(self) -> str:
        """The torch device type, such as `"npu"`, as in `torch.device.type`."""
        return self._device_type

    def is_accelerator(self) -> bool:
        """Return whether this accelerator is a device other than the CPU."""
        return self._device_type != "cpu"

    def _torch_device_type(self) -> str:
        """Return the device type in torch. The constructor calls this once."""
        return self.backend.device_type

    def apply_vendor_defaults(self) -> tuple[str, ...]:
        """Set up this process as the vendor recommends, and return one string for each change.

        Each variable in `Backend.environment.defaults` that is not set yet is set. A
        change to a variable is returned as `"NAME=value"`. A plugin may make further
        changes. Constructing an accelerator never calls this function. The `activate()`
        function of an integration calls it, and launchers set the variables for their
        ranks, unless `vendor_defaults=False` is passed.
        """
        unset_defaults = missing_defaults(self.backend, os.environ)
        os.environ.update(unset_defaults)
        return tuple(f"{name}={value}" for name, value in unset_defaults.items())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}{self._origin()}>"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # A pickle contains a function and its arguments, which the other process calls. A
        # device cannot be passed between processes, so the other process finds its
        # accelerator by the name.
        if not self._is_declared:
            return type(self), ()
        if self._by_name is None:
            return type(self), (self.backend,)
        name = self.name
        if self.backend.distribution:
            name = f"{name}@{self.backend.distribution}"
        return self._by_name, (name,)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self

    def _vendor_version(self) -> str:
        """Return the vendor's package and its version for messages, such as `"torch_npu
        2.13.0"`.
        """
        package = "torch"
        for module in self.backend.vendor_imports:
            top_level, _, _ = module.partition(".")
            if top_level in sys.modules:
                package = top_level
                break
        version = getattr(sys.modules[package], "__version__", "")
        return f"{package} {version}".strip()

    def _call_if_supported(self, member: Callable[..., Any], *arguments: Any) -> Any:
        """Call the member, and return its result or `None` if it raises a `RuntimeError`."""
        with suppress(RuntimeError):  # an `UnsupportedError` is one
            return member(*arguments)
        return None

    def _vendor_attribute(self, name: str) -> Any:
        """Return the object called `name` in the vendor's module, or `None` if there is none."""
        return getattr(self.device_module, name, None)

    def _unsupported(self, member: str, reason: str = "") -> errors.UnsupportedError:
        """Return the error to raise if the device does not support `member`."""
        if self._is_declared:
            subject = f"{self.name}{self._origin()}"
            problem = f"{member} is not supported by {self._vendor_version()}"
        else:
            # The class is the user's own, so the user can add the member.
            subject = type(self).__name__
            problem = f"{member} is not implemented"
            if not reason:
                problem += "; override it"
        if reason:
            problem += f": {reason}"
        return errors.UnsupportedError(f"{subject}: {problem}")

    def _origin(self) -> str:
        """Return the distribution that declares the backend, in parentheses, or an
        empty string if it is unknown.
        """
        if self.backend.provenance is None:
            return ""
        return f" ({self.backend.provenance})"


def _declaration_for_class(cls: type) -> Backend:
    """Return a declaration, with the CPU as the device, for a class that no plugin
    declares.
    """
    name = cls.__name__.lower()
    if not name.isalnum():  # It may not be valid as a backend's name.
        name = "custom"
    return Backend(name=name, priority=0, device_type="cpu")


class Devices(Base):
    """The members that describe a device type and address its devices by index.

    A subclass defines `device_count`, `current_device` and `_select`. All other members
    use these three.
    """

    #: Whether programs for this device expect that `with accelerator.device(i):` selects
    #: the device. If so, such a block gets a warning.
    _warns_of_device_blocks = False

    # Nature

    def is_synchronized_device(self) -> bool:
        """Return whether streams never have to wait for each other.

        This is True if every call returns after its work is done, or if the device has
        only one queue (mps).
        """
        return False

    def use_host_timers(self) -> bool:
        """Return whether to time work with the host's clock. If the result is False,
        use `Event` instead.
        """
        return self.is_synchronized_device()

    def resolves_data_dependency(self) -> bool:
        """Return whether the device itself orders dependent work on different streams,
        without explicit waits.
        """
        return self.is_synchronized_device()

    def handles_memory_backpressure(self) -> bool:
        """Return whether an allocation waits until running work frees memory, instead
        of failing.
        """
        return self.is_synchronized_device()

    def is_available(self) -> bool:
        """Return whether at least one device can be used. This never raises an error."""
        with suppress(Exception):
            return self.device_count() > 0
        return False

    def is_initialized(self) -> bool:
        """Return whether the vendor's runtime has started in this process.

        If the runtime has no separate start, this returns `is_available()`.
        """
        return self.is_available()

    # Devices

    def device_name(self, device_index: Device = None, device: Device = None) -> str:
        """Return the device's torch name, such as `"npu"` without an index and
        `"npu:1"` with an index.
        """
        if device is not None:
            device_index = self._merge_device_arguments(device_index, device)
        index = None if device_index is None else self._unchecked_index(device_index)
        return self._name_at(index)

    def device(
        self, device_index: Device = None, device: Device = None
    ) -> torch.device:
        """Return the `torch.device` with the given index. Without an index, the result
        means torch's current device.

        This does not select a device. Use `device_guard` for that. As with
        `torch.device`, the device need not exist.
        """
        if device is not None:
            device_index = self._merge_device_arguments(device_index, device)
        if self._warns_of_device_blocks and device_index is not None:
            self._warn_if_entered(device_index)
        index = None if device_index is None else self._unchecked_index(device_index)
        try:
            return self._torch.device(self._name_at(index))
        except RuntimeError as error:
            raise self._unsupported(
                "device", f"torch has no device type {self._device_type!r}"
            ) from error

    def _warn_if_entered(self, device_index: Device) -> None:
        # Dynamo cannot trace code that inspects the caller.
        if not self._torch.compiler.is_compiling():
            warn_if_entered(self.name, device_index)

    def device_guard(
        self, device_index: Device = None, device: Device = None
    ) -> AbstractContextManager[Any]:
        """Return a context manager that selects the device and then restores the
        previous device. `None` changes nothing.

        Raises `InvalidDeviceError`, a `ValueError`, if there is no such device.
        """
        if device is not None:
            device_index = self._merge_device_arguments(device_index, device)
        if device_index is None:
            return nullcontext()
        index = self._checked_index(device_index)
        # The vendor's context manager is preferred, because it does not start a device
        # only to restore it.
        guard_class = self._vendor_attribute("device")
        is_context = inspect.isclass(guard_class) and hasattr(guard_class, "__enter__")
        if is_context and "device" not in self.refused:
            guard = self._query_vendor_or_torch("device", index)
            if guard:
                return cast("AbstractContextManager[Any]", guard)
        return self._guard_by_set_device(index)

    @contextmanager
    def _guard_by_set_device(self, index: int) -> Iterator[None]:
        """Select a device within the block, and restore the previous device after it."""
        previous_index = self.current_device()
        if previous_index != index:
            self.set_device(index)
        try:
            yield
        finally:
            # The block may have selected another device.
            if self.current_device() != previous_index:
                self.set_device(previous_index)

    def set_device(self, device_index: Device = None, device: Device = None) -> None:
        """Select the current device of this thread.

        Raises `InvalidDeviceError`, a `ValueError`, if there is no such device.
        """
        if device is not None:
            device_index = self._merge_device_arguments(device_index, device)
        self._select(self._checked_index(device_index))

    def _select(self, index: int) -> None:
        """Make `index`, which is in range, the current device. With only one device
        there is nothing to do.
        """
        if self.device_count() > 1:
            raise self._unsupported("set_device")

    def current_device(self) -> int:
        """Return the index of the current device in this thread."""
        raise self._unsupported("current_device")

    def current_device_name(self) -> str:
        """Return the current device's torch name, such as `"npu:1"`."""
        return self._name_at(self.current_device())

    def device_count(self) -> int:
        """Return the number of devices that this process sees."""
        raise self._unsupported("device_count")

    def synchronize(self, device_index: Device = None, device: Device = None) -> None:
        """Wait until the device has finished all queued work.

        By default, this does nothing if every call returns after its work is done, and
        raises `UnsupportedError` otherwise.
        """
        if not self.is_synchronized_device():
            raise self._unsupported("synchronize")
        self._check_device_argument(device_index, device)

    def lazy_call(self, callback: Callable[[], Any]) -> Any:
        """Call `callback` once the device is initialized. Call it at once if the device
        is already initialized, or if the vendor cannot delay calls.
        """
        call_when_initialized = self._vendor_attribute("_lazy_call")
        if call_when_initialized is None:
            return callback()
        return call_when_initialized(callback)

    def device_properties(
        self, device_index: Device = None, device: Device = None
    ) -> DeviceProperties:
        """Return the properties of the device as a frozen record.

        The properties come from the vendor's
        `torch.<device_type>.get_device_properties`. Without that function, only the
        name of `get_device_name` and the memory are known. Raises `InvalidDeviceError`,
        a `ValueError`, if there is no such device.
        """
        index = self._index(device_index, device)
        properties = self._query_vendor_or_torch("get_device_properties", index)
        total = self._call_if_supported(self.total_memory, index)
        if properties is None:
            vendors_name = self._query_vendor_or_torch("get_device_name", index)
            name = str(vendors_name or self.device_name(index))
            return DeviceProperties(name=name, total_memory=total)
        return read_properties(properties, total)

    def device_uuid(
        self, device_index: Device = None, device: Device = None
    ) -> str | None:
        """Return the device's UUID in the vendor's spelling, or `None` if the vendor
        reports none.
        """
        if device is not None:
            device_index = self._merge_device_arguments(device_index, device)
        return self.device_properties(device_index).uuid

    def visible_device_ids(self) -> tuple[int | str, ...] | None:
        """Return the ids in the visible-devices variable, as the vendor's runtime reads
        it, or `None` if all devices are visible.

        The ids are in the vendor's numbering: indices, module ids or UUIDs. Raises
        `SettingError` for a value that the runtime rejects.
        """
        value = None
        for name in self.visible_devices_envs():
            if name in os.environ:
                value = os.environ[name]
                break
        return parse_visible_devices(self.backend.visibility.grammar, value).ids

    def visible_devices_envs(self) -> list[str]:
        """Return the names of the vendor's visible-devices variables, in order of
        precedence, highest first.
        """
        return list(self.backend.visibility.variables)

    def _all_device_ids(self) -> tuple[int | str, ...] | None:
        """Return the ids of all devices, by index, in the form that the visible-devices
        variable accepts, or `None` if they are unknown.

        The ids are valid in a process in which the variable hides no device.
        """
        return tuple(range(self.device_count()))

    def get_device_capability(
        self, device_index: Device = None, device: Device = None
    ) -> DeviceCapability:
        """Return the device's capabilities in the form of torch.accelerator,
        `{"supported_dtypes": {...}}`.

        These are the data types that a tensor on the device can have; an operator may
        support fewer. If torch.accelerator does not report them, each type is tried on
        the device with one element. (`torch.cuda.get_device_capability` is different:
        it returns a compute capability, which is `device_properties().capability`
        here.)
        """
        index = self._index_or_none(device_index, device)
        # An older torch lacks the function. The function raises an error for a device
        # that does not report its data types.
        with suppress(AttributeError, RuntimeError):
            capability = self._torch_accelerator.get_device_capability(
                self._index(index)
            )
            return {"supported_dtypes": set(capability["supported_dtypes"])}
        device = self.device(index)
        dtypes = _convertible_dtypes(self._torch, device)
        if not dtypes:
            raise self._unsupported(
                "get_device_capability", f"no tensor can be created on {device}"
            )
        return {"supported_dtypes": dtypes}

    def total_memory(self, device_index: Device = None, device: Device = None) -> int:
        """Return the device's total memory in bytes, from its properties or otherwise
        from `mem_get_info`.
        """
        if device is not None:
            device_index = self._merge_device_arguments(device_index, device)
        properties = self._query_vendor_or_torch("get_device_properties", device_index)
        total = getattr(properties, "total_memory", None)
        if total:
            return int(total)
        # Not `self.mem_get_info`, because its default calls this member.
        free_and_total = self._query_vendor_or_torch(
            "mem_get_info", device_index, torch_name="get_memory_info"
        )
        if not free_and_total:
            raise self._unsupported("total_memory")
        _free, total = free_and_total
        return int(total)

    def _query_vendor_or_torch(
        self, name: str, *devices: Device, torch_name: str = ""
    ) -> Any:
        """Return the result of the vendor's function or, if there is none, of
        torch.accelerator's function.

        `None` if neither exists, or if the driver rejects the query.
        """
        error_if_rejected: type[Exception]
        query = self._vendor_attribute(name)
        if query:
            query = self._with_unsupported_error(name, query)
            error_if_rejected = errors.UnsupportedError
        else:
            query = getattr(self._torch_accelerator, torch_name, None)
            error_if_rejected = RuntimeError
        if query is None:
            return None
        with suppress(error_if_rejected):
            indices = [self._index(device) for device in devices]
            return query(*indices)
        return None

    def _with_unsupported_error(
        self, name: str, query: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Wrap `query` to raise `UnsupportedError` if the driver rejects the query.

        If the device itself fails, its error is raised unchanged. A query called `is_…`
        returns False instead of raising an error.
        """

        @wraps(query)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            try:
                return query(*args, **kwargs)
            except RuntimeError as error:
                if name.startswith("is_"):
                    return False
                is_wrapped_already = isinstance(error, errors.UnsupportedError)
                if is_wrapped_already:
                    raise
                is_device_working = self._try_to_create_tensor()
                if not is_device_working:
                    raise
                self.refused[name] = f"the driver rejects this query ({error})"
                raise self._unsupported(name, self.refused[name]) from error

        return wrapped

    def _try_to_create_tensor(self) -> bool:
        """Return whether a tensor can be created on the device and read back.

        If so, an earlier error came from one function and not from the device. The
        tensor is read back because creating a tensor may not start the device.
        """
        with suppress(RuntimeError):
            self._torch.ones(1, device=self._device_type).cpu()
            return True
        return False

    def _merge_device_arguments(self, device_index: Device, device: Device) -> Device:
        """Return the device that a member was called with, by `device_index` or
        `device`.

        Raises `InvalidArgumentError`, a `TypeError`, if the two are different devices.
        """
        if device_index is None:
            return device
        if device is None:
            return device_index
        if self._unchecked_index(device_index) != self._unchecked_index(device):
            raise errors.InvalidArgumentError(
                f"{self.name}: device_index={device_index!r} and device={device!r} are "
                "different devices: pass one of them"
            )
        return device_index

    def _index(self, device_index: Device, device: Device = None) -> int:
        """Return the index of the device. `None` means the current device.

        Raises the errors of `_checked_index` and `_merge_device_arguments`.
        """
        if device is not None:
            device_index = self._merge_device_arguments(device_index, device)
        if device_index is None:
            return self.current_device()
        return self._checked_index(device_index)

    def _index_or_none(self, device_index: Device, device: Device = None) -> int | None:
        """Return the checked index of the device. For `None`, return `None` without
        querying the current device.
        """
        if device is not None:
            device_index = self._merge_device_arguments(device_index, device)
        if device_index is None:
            return None
        return self._checked_index(device_index)

    def _check_device_argument(
        self, device_index: Device, device: Device = None
    ) -> None:
        """Raise the error for an argument that is not a device of this accelerator."""
        self._index_or_none(device_index, device)

    def _checked_index(self, device_index: Any) -> int:
        """Check that an index, a string or a `torch.device` is a device of this
        accelerator, and return its index.

        Raises `InvalidDeviceError`, a `ValueError`, if the index is out of range or the
        device has another type. Raises `InvalidArgumentError`, a `TypeError`, for an
        argument of another type.
        """
        index = self._unchecked_index(device_index)
        if index is None:
            return self.current_device()
        self._check_range(index)
        return index

    def _check_range(self, index: int) -> None:
        count = self.device_count()
        if 0 <= index < count:
            return
        if count == 1:
            devices = "1 device"
        else:
            devices = f"{count or 'no'} devices"
        raise errors.InvalidDeviceError(
            f"{self.name}: device index {index} is out of range: this process sees {devices}"
        )


def _convertible_dtypes(torch: Any, device: Any) -> set[Any]:
    """Return the data types to which a tensor of one element on `device` can be
    converted.

    Each tensor is read back, because an error in a queue is reported only when the
    result is read.
    """
    all_dtypes = {v for v in vars(torch).values() if isinstance(v, torch.dtype)}
    convertible = set()
    with warnings.catch_warnings():
        # torch warns of types that it calls experimental.
        warnings.simplefilter("ignore")
        for dtype in all_dtypes:
            with suppress(RuntimeError, TypeError):  # The device lacks this type.
                torch.empty(1, dtype=dtype, device=device)
                torch.ones(1, device=device).to(dtype).cpu()
                convertible.add(dtype)
    return convertible


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    """Return the parameters of `function`, or `None` if Python cannot read them, as for
    some functions written in C.
    """
    with suppress(TypeError, ValueError):
        return list(inspect.signature(function).parameters.values())
    return None


def has_parameter(function: Callable[..., Any], name: str) -> bool:
    """Return whether `function` has a parameter called `name`. The result is False if
    its parameters are unknown.
    """
    known_parameters = parameters(function) or []
    return name in [parameter.name for parameter in known_parameters]


def current_torch_accelerator(
    torch: Any, *, check_count: bool = True
) -> torch.device | None:
    """Return the device of torch's current accelerator, which has no index, or `None`
    if this machine has no such device.

    torch returns the device type that it was built for, whether or not a device is
    present, and its option `check_available` may start CUDA's driver. With
    `check_count=False`, the devices are not counted. A device that a package registered
    is returned even if the package counts no device before it starts. torch 2.6 raises
    an error in cases in which later versions return `None`.
    """
    try:
        device = torch.accelerator.current_accelerator()
    except RuntimeError as error:
        # Any other error means that torch has two accelerators that exclude each other.
        if "none is available" not in str(error):
            raise
        return None
    if device is None or not check_count:
        return device
    # A package's device may count as 0 until it starts.
    is_registered_by_package = device.type == torch._C._get_privateuse1_backend_name()
    if is_registered_by_package:
        return device
    # A vendor's torch may lack the module before its package is imported.
    module = getattr(torch, device.type, None)
    if module is not None and not module.device_count():
        return None
    return device


def missing_defaults(backend: Backend, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables in `Backend.environment.defaults` that `environ` does not
    set, with the vendor's values.
    """
    missing = {}
    for assignment in backend.environment.defaults:
        name, _, value = assignment.partition("=")
        if name not in environ:
            missing[name] = value
    return missing
