"""Adapt a class with DeepSpeed's interface (`DeepSpeedAccelerator`) to accel_core's `Accelerator`.

    Backend(name="acme", priority=950, device_type="acme", vendor_import="torch_acme",
            accelerator="acme_deepspeed.accelerator:ACME_Accelerator")

The class may be from DeepSpeed or from a vendor. `accel_core.set_accelerator()` also accepts the class or an
instance of the class. The adapted accelerator calls the members that the class implements. For members that
the class lacks, the adapted accelerator uses accel_core's default for the device. A class may lack members
because it was written for an older DeepSpeed, or because DeepSpeed's interface has fewer members than
accel_core's. This module does not import DeepSpeed, but the class does. If choosing an accelerator imports
the class, DeepSpeed uses the adapted accelerator, as after `activate()`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

from accel_core import Accelerator, Backend, OpProvider
from accel_core.errors import InvalidAcceleratorError
from accel_core.interface.with_block import warn_if_entered
from accel_core.op_providers import providers
from accel_core.torch_import import import_torch
from accel_train.deepspeed import _install, _op_registry, op_builders
from accel_train.staged import STAGED, unusable_reason

__all__ = ["adapt"]

_ABSTRACT_CLASS = "DeepSpeedAccelerator"
#: Members of accel_core that the foreign class never replaces. The class's operators are one provider among
#: several, and a pickle refers to accel_core's declaration.
_NEVER_DELEGATED = frozenset(
    (
        "backend",
        "communication_backend_name",
        "create_op_builder",
        "get_op_builder",
        "name",
        "op_builder_dir",
    )
)


def adapt(foreign: object, backend: Backend | None) -> Accelerator | None:
    """Return an accel_core accelerator that adapts `foreign`, an accelerator with DeepSpeed's interface.

    `foreign` is an accelerator class or an instance of one. Returns `None` if `foreign` does not have
    DeepSpeed's interface. A class is called without arguments, even if the class lacks members that a newer
    DeepSpeed made abstract. If `backend` is `None`, a declaration is made from the values that the instance
    reports. Raises `InvalidAcceleratorError` if the class cannot be instantiated, or if the instance's device
    type differs from that of `backend`.
    """
    foreign_class = foreign if isinstance(foreign, type) else type(foreign)
    base_names = [base.__name__ for base in foreign_class.__mro__]
    if _ABSTRACT_CLASS not in base_names:
        return None
    instance: Any = foreign
    if isinstance(foreign, type):
        instance = _create_instance(foreign_class)
    device_type, _, _ = str(instance.device_name()).partition(":")
    if backend is None:
        backend = _declaration_from(instance, foreign_class, device_type)
    elif backend.device_type != device_type:
        raise InvalidAcceleratorError(
            f"backend {backend.name!r} is declared for the device type {backend.device_type!r}, but its "
            f"class {_qualified_name(foreign_class)} is for {device_type!r}. Next step: declare "
            f"device_type={device_type!r}."
        )
    adapted_class = _adapted_class(foreign_class, device_type)
    adapted: Any = adapted_class(backend, instance)
    # Set before the next call, in which DeepSpeed may read the accelerator's operators.
    adapted._op_providers = providers
    _install.replace_temporary_accelerator(adapted)
    return cast("Accelerator", adapted)


def _create_instance(foreign_class: type) -> Any:
    """Return an instance of the class, even if it lacks members that a newer DeepSpeed made abstract.

    Raises `InvalidAcceleratorError` if the class cannot be called without arguments.
    """
    try:
        if getattr(foreign_class, "__abstractmethods__", None):
            # A newer DeepSpeed may have made members abstract that the class lacks.
            return _without_abstract_methods(foreign_class)()
        return foreign_class()
    except Exception as error:
        raise InvalidAcceleratorError(
            f"{_qualified_name(foreign_class)} cannot be created without arguments: "
            f"{type(error).__name__}: {error}. Next step: pass an instance to "
            "accel_core.set_accelerator(), or declare a class that needs no arguments."
        ) from error


def _without_abstract_methods(abstract_class: type) -> type:
    """Return a subclass of `abstract_class`, with the same name, that can be instantiated."""
    metaclass = type(abstract_class)
    subclass: Any = metaclass(
        abstract_class.__name__,
        (abstract_class,),
        {"__module__": abstract_class.__module__},
    )
    # Python instantiates a class only if this set is empty.
    subclass.__abstractmethods__ = frozenset()
    return cast("type", subclass)


def _qualified_name(any_class: type) -> str:
    return f"{any_class.__module__}.{any_class.__qualname__}"


def _declaration_from(instance: Any, foreign_class: type, device_type: str) -> Backend:
    """Return a declaration with the name and device type that the instance of `foreign_class` reports."""
    return Backend(
        name=str(getattr(instance, "_name", "") or device_type).lower(),
        priority=0,
        device_type=device_type,
        accelerator=f"{foreign_class.__module__}:{foreign_class.__name__}",
        description=(
            f"{_qualified_name(foreign_class)}, an accelerator class with DeepSpeed's interface"
        ),
    )


def _base_class(device_type: str) -> type[Accelerator]:
    """Return the accel_core class that provides the members that the foreign class lacks."""
    if device_type == "cpu":
        from accel_core.interface.cpu import CPUAccelerator

        return CPUAccelerator
    # torch has a module for the device type, such as `torch.npu`.
    if hasattr(import_torch(), device_type):
        from accel_core import TorchAccelerator

        return TorchAccelerator
    return Accelerator


# --- the class -----------------------------------------------------------------------------------------


@functools.cache
def _adapted_class(foreign_class: type, device_type: str) -> type:
    """Return a subclass of accel_core's class that calls the members that `foreign_class` implements."""
    members = {
        name: _delegating_member(foreign_class, name)
        for name in _implemented_members(foreign_class)
    }
    adapted_class = type(
        foreign_class.__name__,
        (_Adapted, _base_class(device_type)),
        {**members, "__module__": foreign_class.__module__},
    )
    for base in foreign_class.__mro__:
        register = getattr(base, "register", None)
        if base.__name__ == _ABSTRACT_CLASS and register is not None:
            # DeepSpeed's own set_accelerator() requires an instance of its abstract class.
            register(adapted_class)
    return adapted_class


def _implemented_members(foreign_class: type) -> Iterator[str]:
    """Yield the public members that the class implements, except `_NEVER_DELEGATED`."""
    for name in dir(foreign_class):
        if name.startswith("_") or name in _NEVER_DELEGATED:
            continue
        member = getattr(foreign_class, name)
        is_abstract = getattr(member, "__isabstractmethod__", False)
        if not is_abstract:
            yield name


def _delegating_member(foreign_class: type, name: str) -> Any:
    """Return a method or property that uses the member named `name` of the foreign instance.

    The member is looked up on the instance, because a constructor may set members.
    """
    member = getattr(foreign_class, name)
    if not callable(member) or isinstance(member, type):
        return property(
            lambda self: getattr(self._foreign, name),
            lambda self, value: self._set_on_foreign(name, value),
        )

    @functools.wraps(member)
    def call_foreign(self: Any, *args: Any, **options: Any) -> Any:
        return getattr(self._foreign, name)(*args, **options)

    @functools.wraps(member)
    def torch_device(self: Any, *args: Any, **options: Any) -> Any:
        # Some of DeepSpeed's classes return a context manager here, which `model.to(...)` does not accept.
        device = call_foreign(self, *args, **options)
        torch = import_torch()
        if isinstance(device, torch.device):
            return device
        # The only argument of `device()` is the device's index.
        values = [*args, *options.values()]
        index = values[0] if values else None
        is_context_manager = hasattr(device, "__enter__")
        if index is not None and is_context_manager:
            warn_if_entered(self.name, index)
        return torch.device(self.backend.device_type, index)

    if name == "device":
        return torch_device
    return call_foreign


class _Adapted:
    """A mixin for every adapted class, placed before accel_core's class.

    The attribute `_foreign` is the foreign instance.
    """

    backend: Backend
    _foreign: Any = None
    _is_constructed = False

    def __init__(self, backend: Backend, foreign: Any) -> None:
        self._foreign = foreign
        initialize: Any = super().__init__
        initialize(backend)
        self._is_declared = backend.provenance is not None
        # DeepSpeed's own classes keep the compiler's name in this attribute.
        compiler = getattr(foreign, "_compile_backend", None)
        if compiler:
            self._compile_backend = compiler
        # From now on, `_set_on_foreign` sets attributes on the foreign instance.
        self._is_constructed = True

    @property
    def _name(self) -> str:
        return str(getattr(self._foreign, "_name", None) or self.backend.name)

    def _set_on_foreign(self, name: str, value: Any) -> None:
        """Set an attribute of the foreign instance, except during construction.

        During construction, the foreign instance has already set the attribute.
        """
        if self._is_constructed:
            setattr(self._foreign, name, value)

    def __getattr__(self, name: str) -> Any:
        """Return a member that only the foreign instance has, such as `_communication_backend_name`."""
        # While an object is unpickled or copied, it has no foreign instance yet.
        if name.startswith("__") or self._foreign is None:
            raise AttributeError(name)
        return getattr(self._foreign, name)

    def communication_backend_name(self) -> str | None:
        """Return the name of the communication backend that the foreign instance reports.

        Returns accel_core's default if the instance reports none. Returns `staged` if the instance reports
        gloo but gloo does not support the device, as DeepSpeed's class for Metal does.
        """
        name = self._foreign.communication_backend_name()
        if not name:
            name = getattr(self._foreign, "_communication_backend_name", None)
        if not name:
            name = super().communication_backend_name()  # type: ignore[misc]
        if name == "gloo" and unusable_reason(name, self.backend.device_type):
            name = STAGED
        return cast("str | None", name)

    def __reduce__(self) -> Any:
        if self.backend.provenance is not None:
            # A plugin declares the backend, so the process that unpickles the accelerator finds it by name.
            return super().__reduce__()
        return adapt, (_vendor_class(type(self._foreign)), None)

    def _providers(self) -> tuple[OpProvider, ...]:
        """Return the providers of operators. The provider with the foreign class's builders comes first."""
        other_providers: tuple[OpProvider, ...] = super()._providers()  # type: ignore[misc]
        builder_names: set[str] = set()
        for provider in other_providers:
            builder_names.update(provider.builders)
        builder_names.update(op_builders.builder_sources(self.backend.device_type))
        # The class may also have builders with the names of DeepSpeed's builders for CUDA.
        builder_names.update(op_builders.builder_sources("cuda"))
        return (self._provider_of_foreign_builders(builder_names), *other_providers)

    def _provider_of_foreign_builders(self, builder_names: set[str]) -> OpProvider:
        """Return a provider of the foreign instance's builders that have one of `builder_names`."""
        sources = {}
        for name in sorted(builder_names):
            builder = None
            with suppress(Exception):  # The class's builders may not be installed.
                builder = self._foreign.get_op_builder(name)
            operator_name = getattr(builder, "NAME", "")
            is_placeholder = operator_name == _op_registry.NOT_IMPLEMENTED
            if isinstance(builder, type) and not is_placeholder:
                sources[name] = f"{builder.__module__}:{builder.__qualname__}"
        package = ""
        with suppress(Exception):
            package = self._foreign.op_builder_dir()
        return op_builders.DeepSpeedProvider(
            sources,
            name=_qualified_name(_vendor_class(type(self._foreign))),
            kind="deepspeed",
            package=package,
            optional=True,
        )


def _vendor_class(foreign_class: type) -> type:
    """Return the vendor's class from which `_without_abstract_methods` derived `foreign_class`.

    Returns `foreign_class` itself if `_without_abstract_methods` did not create it.
    """
    _, parent, *_ = foreign_class.__mro__
    # `_without_abstract_methods` gives its class the module and the name of the vendor's class.
    if (
        foreign_class.__module__ == parent.__module__
        and foreign_class.__name__ == parent.__name__
    ):
        return parent
    return foreign_class
