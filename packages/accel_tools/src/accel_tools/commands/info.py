"""`accel info`: show what an accelerator is and can do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import click

from accel_core import Accelerator, DeviceProperties, HostStream, is_installed
from accel_core.cli import output as options
from accel_core.cli import page
from accel_core.cli.output import answering
from accel_core.errors import UnsupportedError
from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.explain.autoload import autoload_conflicts
from accel_core.sandbox import guard
from accel_core.settings import Pin
from accel_core.text import one_line, short_repr
from accel_core.torch_import import import_torch
from accel_core.verdict import How
from accel_train.child_accelerator import Chosen, Progress, run_in_child

__all__ = ["command"]

T = TypeVar("T")

#: The maximum number of devices to examine, which exceeds the number in any host.
_MAX_DEVICES = 128
#: The types of the fields of `DeviceProperties` that are not strings.
_FIELD_TYPES: dict[str, type] = {
    "total_memory": int,
    "multiprocessors": int,
    "capability": tuple,
    "integrated": bool,
}
_TITLES = ("INDEX", "DEVICE", "MEMORY", "FREE", "DESCRIPTION")
#: Capabilities that share a line on the page, and their human-readable names. In the JSON document,
#: `capabilities` contains all capabilities.
_CAPABILITY_TITLES = {
    "is_available": "a device",
    "is_bf16_supported": "bf16",
    "is_bf16_native": "native bf16",
    "is_fp16_supported": "fp16",
    "is_synchronized_device": "synchronous execution",
    "use_host_timers": "timing with the host's clock",
    "resolves_data_dependency": "implicit stream ordering",
    "handles_memory_backpressure": "waiting for free memory",
    "supports_nvtx_domain": "NVTX domains",
    "prefer_triton_grouped_mm": "Triton grouped matmul",
}


@click.command("info")
@options.backend_name
@options.probe_timeout
@options.as_json
@click.pass_context
def command(
    ctx: click.Context, name: Pin | None, *, timeout: float | None, as_json: bool
) -> None:
    """Show what the chosen accelerator, or NAME, is and can do.

    Shows the devices and their memory, data types, communication and compile backends, streams, graphs and
    operators. Needs torch; a child process imports torch and the vendor's package.
    """
    with answering(as_json=as_json) as output:
        settings = options.read_settings(timeout)
        result = run_in_child(
            document_in_child,
            {},
            settings,
            name,
            timeout=settings.probe_timeout,
            skip_crashes=True,
        )
        document = result.value
        # For a CPU fallback, the document already has the conflicts of autoload.
        if document["how"] != How.FALLBACK.value:
            conflicts = autoload_conflicts(result.backend, settings.probe_timeout)
            document["autoload"] = [str(conflict) for conflict in conflicts]
        if as_json:
            output.write_json(document)
        else:
            output.write_page(_page(document))
    ctx.exit(1 if document["problems"] else 0)


# --- The document --------------------------------------------------------------------


def document_in_child(
    chosen: Chosen, arguments: dict[str, Any], report_step: Progress
) -> dict[str, Any]:
    """Query an accelerator in a child process, and return JSON-serializable values.

    `arguments["skipped"]` contains the names of queries during which an earlier child process crashed or
    hung, with the errors. `report_step` reports the name of the current query to the parent process.
    """
    query = _Query(report_step, arguments["skipped"])
    document = _document(chosen.accelerator, query)
    document["how"] = chosen.how.value if chosen.how else None
    document["autoload"] = list(chosen.autoload)
    return document


class _Query:
    """A callable that queries an accelerator, and records failures instead of raising errors."""

    def __init__(self, report_step: Progress, skipped: dict[str, str]) -> None:
        #: The error of each failed query, by the query's name.
        self.problems: dict[str, str] = {}
        self._report_step = report_step
        #: The errors of queries that crashed an earlier child process, by the query's name.
        self._skipped = skipped

    def __call__(
        self, name: str, query: Callable[[], T], *expected_types: type
    ) -> T | None:
        """Call `query` and return its result.

        Returns `None` if the device does not support the query, or if the query fails. A
        query also fails if its result is not an instance of one of `expected_types`.
        Failures are added to `problems`.
        """
        if name in self._skipped:
            self.problems[name] = self._skipped[name]
            return None
        self._report_step(name)
        try:
            with guard.preserved_state(name):
                result = query()
            if result is not None and expected_types:
                _require_type(result, expected_types)
        except UnsupportedError:  # This is not a failure.
            return None
        except PLUGIN_ERRORS as error:
            self.problems[name] = root_cause(error)
            return None
        return result


def _require_type(result: object, expected_types: tuple[type, ...]) -> None:
    """Raise `TypeError` unless the result is an instance of one of `expected_types`."""
    # bool is a subclass of int, but a bool is not a number.
    is_unexpected_bool = isinstance(result, bool) and bool not in expected_types
    if is_unexpected_bool or not isinstance(result, expected_types):
        expected = " or ".join(
            expected_type.__name__ for expected_type in expected_types
        )
        raise TypeError(
            f"it returned {short_repr(result)} ({type(result).__name__}), expected {expected}"
        )
    if isinstance(result, DeviceProperties):
        _require_field_types(result)


def _require_field_types(properties: DeviceProperties) -> None:
    """Raise `TypeError` if a field of the properties has the wrong type."""
    for name, value in properties.to_dict().items():
        expected = _FIELD_TYPES.get(name, str)
        if value is not None and not isinstance(value, expected):
            raise TypeError(
                f"{name} is {short_repr(value)} ({type(value).__name__}), "
                f"expected {expected.__name__}"
            )


def _document(accelerator: Accelerator, query: _Query) -> dict[str, Any]:
    """Return the accelerator's capabilities and devices as JSON-serializable values.

    The queries may initialize devices.
    """
    backend = accelerator.backend
    source = backend.provenance
    count = query("device_count()", accelerator.device_count, int) or 0
    capabilities = query("capabilities()", accelerator.capabilities)
    version = query(
        "communication_backend_version()",
        accelerator.communication_backend_version,
        tuple,
    )
    visible = query("visible_device_ids()", accelerator.visible_device_ids)
    return {
        "name": accelerator.name,
        "distribution": source.distribution if source else "",
        "version": source.version if source else "",
        "description": backend.description,
        "url": backend.url,
        "priority": backend.priority,
        "device_type": query("device()", lambda: accelerator.device().type),
        "vendor_import": list(backend.vendor_imports),
        "torch": str(import_torch().__version__),
        "device_count": count,
        "devices": [
            _device_document(accelerator, index, query)
            for index in range(min(count, _MAX_DEVICES))
        ],
        "dtypes": query(
            "supported_dtypes()",
            lambda: [_dtype_name(dtype) for dtype in accelerator.supported_dtypes()],
        ),
        "communication_backend": query(
            "communication_backend_name()",
            lambda: _communication_backend(accelerator),
            str,
        ),
        "communication_backend_version": _list_or_none(version),
        "compile_backend": query(
            "get_compile_backend()", accelerator.get_compile_backend, str
        ),
        "streams": query("Stream", lambda: _has_streams(accelerator)),
        "capabilities": capabilities.to_dict() if capabilities else {},
        "why_no_triton": query(
            "is_triton_supported()", lambda: _why_no_triton(accelerator)
        ),
        "op_builders": dict(query("op_builders()", accelerator.op_builders) or {}),
        "visible_devices_envs": query(
            "visible_devices_envs()", accelerator.visible_devices_envs
        ),
        "visible_device_ids": _list_or_none(visible),
        "export_envs": query("export_envs()", accelerator.export_envs),
        "problems": query.problems,
    }


def _why_no_triton(accelerator: Accelerator) -> str | None:
    """Return why `is_triton_supported()` is False, or `None` if it is True."""
    if accelerator.is_triton_supported():
        return None
    if _never_runs_triton(accelerator):
        return f"the backend {accelerator.name} never runs Triton kernels"
    if not is_installed("triton"):
        return "the package triton is not installed"
    if not accelerator.is_available():
        return "no device is available"
    return f"{accelerator.device_properties(0).name} is not supported by Triton"


def _never_runs_triton(accelerator: Accelerator) -> bool:
    """Return whether the accelerator's class inherits the interface's `is_triton_supported`."""
    # The interface's method, which a backend with Triton overrides, always returns False.
    return type(accelerator).is_triton_supported is Accelerator.is_triton_supported


def _device_document(
    accelerator: Accelerator, index: int, query: _Query
) -> dict[str, Any]:
    """Return the properties of one device as plain values."""
    properties = query(
        f"device_properties({index})",
        lambda: accelerator.device_properties(index),
        DeviceProperties,
    )
    if properties is None:
        properties = DeviceProperties(name="")
    return {
        "index": index,
        "torch_device": query(
            f"device_name({index})", lambda: accelerator.device_name(index), str
        ),
        **properties.to_dict(),
        "capability": _list_or_none(properties.capability),
        "available_memory": query(
            f"available_memory({index})",
            lambda: accelerator.available_memory(index),
            int,
        ),
    }


def _list_or_none(values: Iterable[Any] | None) -> list[Any] | None:
    """Return the values as a list, which JSON can contain, or `None` if `values` is `None`."""
    return None if values is None else list(values)


def _dtype_name(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")


def _has_streams(accelerator: Accelerator) -> bool:
    """Return whether the device has streams; the stream class of other devices is `HostStream`."""
    # The class HostStream stands for the only queue of a device without streams.
    stream_class: object = accelerator.Stream
    if not isinstance(stream_class, type):  # `issubclass` would raise TypeError.
        return True
    return not issubclass(stream_class, HostStream)


# --- The page ------------------------------------------------------------------------


def _page(doc: Mapping[str, Any]) -> list[page.Part]:
    """Return the human-readable page that shows the result of `document_in_child`."""
    return [
        *_identity_parts(doc),
        *_device_parts(doc),
        page.heading("Capabilities"),
        page.facts(_capability_facts(doc)),
        *_problem_parts(doc),
        *_autoload_parts(doc),
    ]


def _identity_parts(doc: Mapping[str, Any]) -> list[page.Part]:
    source = f" ({doc['distribution']} {doc['version']})"
    description = f": {one_line(doc['description'])}" if doc["description"] else ""
    return [
        page.paragraph((doc["name"], "bold green"), (source, "dim"), (description, "")),
        page.facts(
            (
                ("chosen as", How(doc["how"]).label if doc["how"] else ""),
                ("priority", str(doc["priority"])),
                ("device type", str(doc["device_type"])),
                ("vendor module", ", ".join(doc["vendor_import"])),
                ("torch", doc["torch"]),
                ("docs", one_line(doc["url"])),
            )
        ),
    ]


def _device_parts(doc: Mapping[str, Any]) -> list[page.Part]:
    parts = [page.heading(page.count(doc["device_count"], "device"))]
    rows: list[list[page.Cell]] = []
    for device in doc["devices"]:
        rows.append(
            [
                (str(device["index"]), ""),
                (str(device["torch_device"] or "-"), "bold"),
                (_format_gib(device["total_memory"]), ""),
                (_format_gib(device["available_memory"]), ""),
                (one_line(_device_description(device)), ""),
            ]
        )
    if rows:
        parts.append(page.table(_TITLES, rows))
    unexamined = doc["device_count"] - len(rows)
    if rows and unexamined:
        text = f"{unexamined} more devices were not examined."
        if unexamined == 1:
            text = "1 more device was not examined."
        parts.append(page.paragraph((text, "")))
    return parts


def _device_description(device: Mapping[str, Any]) -> str:
    """Return the device's name and the other properties that the vendor reports."""
    parts = [device["name"]]
    if device["capability"]:
        parts.append(f"capability {'.'.join(map(str, device['capability']))}")
    if device["multiprocessors"]:
        parts.append(f"{device['multiprocessors']} compute units")
    if device["pci_address"]:
        parts.append(f"PCI {device['pci_address']}")
    if device["uuid"]:
        parts.append(str(device["uuid"]))
    return ", ".join(part for part in parts if part)


def _capability_facts(doc: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each capability, in the order of the page."""
    capabilities: dict[str, bool] = doc["capabilities"]
    no_streams = (
        "not supported (the device has one queue, and the host's clock measures times)"
    )
    yield "train in", ", ".join(doc["dtypes"] or ())
    yield "fp8", _yes_or_no(capabilities.get("is_fp8_supported"))
    yield "fp64", _yes_or_no(capabilities.get("is_fp64_supported"))
    yield "communication", _describe_communication(doc)
    yield "compile backend", str(doc["compile_backend"])
    no_triton = "no"
    if doc["why_no_triton"]:
        no_triton = f"no: {doc['why_no_triton']}"
    has_triton = capabilities.get("is_triton_supported")
    yield "Triton", _yes_or_no(has_triton, no=no_triton)
    yield "graphs", _yes_or_no(capabilities.get("supports_graphs"))
    yield "streams", _yes_or_no(doc["streams"], no=no_streams)
    yield "operators", one_line(", ".join(sorted(doc["op_builders"]))) or "none"
    yield "devices set by", _describe_visible_devices(doc)
    yield "forwards", ", ".join(f"{prefix}*" for prefix in doc["export_envs"] or ())
    yield "supported", _list_capabilities(capabilities, supported=True)
    yield "not supported", _list_capabilities(capabilities, supported=False)


def _list_capabilities(capabilities: Mapping[str, bool], *, supported: bool) -> str:
    """Return the supported or the unsupported capabilities, separated by commas."""
    titles = []
    for name, title in _CAPABILITY_TITLES.items():
        if name in capabilities and capabilities[name] is supported:
            titles.append(title)
    return ", ".join(titles)


def _communication_backend(accelerator: Accelerator) -> str:
    """Return the name of the backend that a process group would use under `accel run`."""
    from accel_train.launch.communication import communication_of

    return communication_of(accelerator)


def _describe_communication(doc: Mapping[str, Any]) -> str:
    name = doc["communication_backend"]
    if name is None:
        return "none: see below"
    version = ".".join(map(str, doc["communication_backend_version"] or ()))
    description = f"{name} {version}".strip()
    if name == "staged":
        description += (
            " (the device has no collectives, so gloo sends copies in host memory)"
        )
    return description


def _describe_visible_devices(doc: Mapping[str, Any]) -> str:
    """Return the variables that select the visible devices, and the current selection."""
    names = ", ".join(doc["visible_devices_envs"] or ())
    ids = doc["visible_device_ids"]
    if not names:
        return ""
    if ids is None:
        return f"{names} (not set, so all devices are visible)"
    selection = ",".join(map(str, ids)) or "none"
    return f"{names} (now {selection})"


def _problem_parts(doc: Mapping[str, Any]) -> list[page.Part]:
    if not doc["problems"]:
        return []
    facts = [(name, one_line(error)) for name, error in doc["problems"].items()]
    return [page.heading("Failed"), page.facts(facts)]


def _autoload_parts(doc: Mapping[str, Any]) -> list[page.Part]:
    if not doc["autoload"]:
        return []
    lines = [[(one_line(line), "")] for line in doc["autoload"]]
    return [page.heading(page.AUTOLOAD), page.bullets(lines)]


def _yes_or_no(value: bool | None, *, no: str = "no") -> str:
    """Return `"yes"`, the text `no`, or `"unknown"` for `None`."""
    if value is None:
        return "unknown"
    return "yes" if value else no


def _format_gib(amount: int | None) -> str:
    """Return a number of bytes as text, such as `"1.5 GiB"`, or a dash if unknown."""
    if amount is None:
        return "-"
    return f"{amount / 2**30:.1f} GiB"
