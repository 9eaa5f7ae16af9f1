"""`accel info`: show what an accelerator is and can do."""

from __future__ import annotations

from collections.abc import Callable
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

#: Of how many devices each is asked; no host has more.
_MOST = 128
#: The kinds of a device's facts that are not texts.
_FACTS: dict[str, type] = {
    "total_memory": int,
    "multiprocessors": int,
    "capability": tuple,
    "integrated": bool,
}
_TITLES = ("INDEX", "DEVICE", "MEMORY", "FREE", "WHAT IT IS")
#: The capabilities that have no line of their own on the page, in words; `capabilities` in JSON has all.
_IN_WORDS = {
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

    Its devices and their memory, data types, communication and compile backends, streams, graphs and
    operators. Needs torch; a child process imports torch and the vendor's package.
    """
    with answering(as_json=as_json) as output:
        settings = options.read_settings(
            timeout
        )  # judged before torch takes its second to import
        result = run_in_child(
            document_in_child,
            {},
            settings,
            name,
            timeout=settings.probe_timeout,
            skip_crashes=True,
        )
        document = result.value
        if document["how"] != How.FALLBACK.value:  # then it was looked for
            document["autoload"] = list(
                map(str, autoload_conflicts(result.backend, settings.probe_timeout))
            )
        if as_json:
            output.write_json(document)
        else:
            output.write_page(_page(document))
    ctx.exit(1 if document["problems"] else 0)


# --- the document --------------------------------------------------------------------------------------


def document_in_child(
    chosen: Chosen, arguments: dict[str, Any], step: Progress
) -> dict[str, Any]:
    """In the child: return the document, except for the effects of torch's autoload."""
    document = _document(chosen.accelerator, _Questions(step, arguments["skipped"]))
    how = chosen.how.value if chosen.how else None
    return {**document, "how": how, "autoload": list(chosen.autoload)}


class _Questions:
    """Asks, and notes what fails: one wedged device must not hide what the others say.

    `step` is told of each question; those of which an earlier process died, or hung, are not asked again.
    """

    def __init__(self, step: Progress, skipped: dict[str, str]) -> None:
        self.problems: dict[str, str] = {}
        self._step = step
        self._skipped = skipped

    def __call__(self, what: str, ask: Callable[[], T], *kinds: type) -> T | None:
        """The answer; `None` where the device has none, the vendor's code fails, or it is none of `kinds`."""
        if what in self._skipped:
            self.problems[what] = self._skipped[what]
            return None
        self._step(what)
        try:
            with guard.preserved_state(what):
                answer = ask()
            return answer if answer is None or not kinds else _checked(answer, kinds)
        except UnsupportedError:
            return None
        except PLUGIN_ERRORS as error:
            self.problems[what] = root_cause(error)
            return None


def _checked(answer: T, kinds: tuple[type, ...]) -> T:
    """The answer, which is one of these kinds and, of a device's facts, each of its own; plugins give any."""
    if not isinstance(answer, kinds) or (
        isinstance(answer, bool) and bool not in kinds
    ):
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(
            f"it gave {short_repr(answer)} ({type(answer).__name__}), expected {expected}"
        )
    if isinstance(answer, DeviceProperties):
        for name, fact in answer.to_dict().items():
            if fact is not None and not isinstance(fact, _FACTS.get(name, str)):
                expected = _FACTS.get(name, str).__name__
                raise TypeError(
                    f"{name} is {short_repr(fact)} ({type(fact).__name__}), expected {expected}"
                )
    return answer


def _document(accelerator: Accelerator, ask: _Questions) -> dict[str, Any]:
    """Describe the accelerator and its capabilities for JSON; may initialise the device."""
    backend = accelerator.backend
    source = backend.provenance
    count = ask("device_count()", accelerator.device_count, int) or 0
    capabilities = ask("capabilities()", accelerator.capabilities)
    version = ask(
        "communication_backend_version()",
        accelerator.communication_backend_version,
        tuple,
    )
    visible = ask("visible_device_ids()", accelerator.visible_device_ids)
    return {
        "name": accelerator.name,
        "distribution": source.distribution if source else "",
        "version": source.version if source else "",
        "description": backend.description,
        "url": backend.url,
        "priority": backend.priority,
        "device_type": ask("device()", lambda: accelerator.device().type),
        "vendor_import": list(backend.vendor_imports),
        "torch": str(import_torch().__version__),
        "device_count": count,
        "devices": [
            _device_document(accelerator, index, ask)
            for index in range(min(count, _MOST))
        ],
        "dtypes": ask(
            "supported_dtypes()",
            lambda: [_dtype(d) for d in accelerator.supported_dtypes()],
        ),
        "communication_backend": ask(
            "communication_backend_name()", lambda: _communication_of(accelerator), str
        ),
        "communication_backend_version": None if version is None else list(version),
        "compile_backend": ask(
            "get_compile_backend()", accelerator.get_compile_backend, str
        ),
        "streams": ask("Stream", lambda: not _is_host_stream(accelerator.Stream)),
        "capabilities": capabilities.to_dict() if capabilities else {},
        "why_no_triton": ask(
            "is_triton_supported()", lambda: _why_no_triton(accelerator)
        ),
        "op_builders": dict(ask("op_builders()", accelerator.op_builders) or {}),
        "visible_devices_envs": ask(
            "visible_devices_envs()", accelerator.visible_devices_envs
        ),
        "visible_device_ids": None if visible is None else list(visible),
        "export_envs": ask("export_envs()", accelerator.export_envs),
        "problems": ask.problems,
    }


def _why_no_triton(accelerator: Accelerator) -> str | None:
    """Return why `is_triton_supported()` is False; `None` if it is True."""
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
    """Whether the accelerator's class leaves the interface's `is_triton_supported`."""
    return type(accelerator).is_triton_supported is Accelerator.is_triton_supported


def _device_document(
    accelerator: Accelerator, index: int, ask: _Questions
) -> dict[str, Any]:
    nothing = DeviceProperties(name="")
    properties = (
        ask(
            f"device_properties({index})",
            lambda: accelerator.device_properties(index),
            DeviceProperties,
        )
        or nothing
    )
    capability = properties.capability
    return {
        "index": index,
        "torch_device": ask(
            f"device_name({index})", lambda: accelerator.device_name(index), str
        ),
        **properties.to_dict(),
        "capability": None if capability is None else list(capability),
        "available_memory": ask(
            f"available_memory({index})",
            lambda: accelerator.available_memory(index),
            int,
        ),
    }


def _dtype(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")


def _is_host_stream(stream: object) -> bool:
    """Whether the class only stands for streams, on a device whose calls end when their work is done."""
    return isinstance(stream, type) and issubclass(stream, HostStream)


# --- the page ------------------------------------------------------------------------------------------


def _page(doc: dict[str, Any]) -> list[page.Part]:
    return [
        *_identity(doc),
        *_devices(doc),
        *_abilities(doc),
        *_problems(doc),
        *_autoload(doc),
    ]


def _autoload(doc: dict[str, Any]) -> list[page.Part]:
    lines = [[(one_line(line), "")] for line in doc["autoload"]]
    return [page.heading(page.AUTOLOAD), page.bullets(lines)] if lines else []


def _identity(doc: dict[str, Any]) -> list[page.Part]:
    source = f" ({doc['distribution']} {doc['version']})"
    what = f": {one_line(doc['description'])}" if doc["description"] else ""
    return [
        page.paragraph((doc["name"], "bold green"), (source, "dim"), (what, "")),
        page.facts(
            (
                ("chosen as", How(doc["how"]).label if doc["how"] else ""),
                ("priority", str(doc["priority"])),
                ("device type", str(doc["device_type"])),
                ("vendor import", ", ".join(doc["vendor_import"])),
                ("torch", doc["torch"]),
                ("read on", one_line(doc["url"])),
            )
        ),
    ]


def _devices(doc: dict[str, Any]) -> list[page.Part]:
    devices = doc["devices"]
    parts: list[page.Part] = [page.heading(page.count(doc["device_count"], "device"))]
    rows = [
        [
            (str(device["index"]), ""),
            (str(device["torch_device"] or "-"), "bold"),
            (_size(device["total_memory"]), ""),
            (_size(device["available_memory"]), ""),
            (one_line(_product(device)), ""),
        ]
        for device in devices
    ]
    more = doc["device_count"] - len(devices)
    rest = [page.paragraph((f"{more} more, not examined.", ""))] if more else []
    return [*parts, page.table(_TITLES, rows), *rest] if rows else parts


def _product(device: dict[str, Any]) -> str:
    """The device's name and what else the vendor says of it."""
    capability = device["capability"]
    parts = (
        device["name"],
        f"capability {'.'.join(map(str, capability))}" if capability else "",
        f"{device['multiprocessors']} compute units"
        if device["multiprocessors"]
        else "",
        f"PCI {device['pci_address']}" if device["pci_address"] else "",
        str(device["uuid"] or ""),
    )
    return ", ".join(part for part in parts if part)


def _abilities(doc: dict[str, Any]) -> list[page.Part]:
    can: dict[str, bool] = doc["capabilities"]
    version = ".".join(map(str, doc["communication_backend_version"] or ()))
    ids = doc["visible_device_ids"]
    visible = ", ".join(doc["visible_devices_envs"] or ())
    others = {words: can[name] for name, words in _IN_WORDS.items() if name in can}
    return [
        page.heading("What it can do"),
        page.facts(
            (
                ("train in", ", ".join(doc["dtypes"] or ())),
                ("fp8", _yes(can.get("is_fp8_supported"))),
                ("fp64", _yes(can.get("is_fp64_supported"))),
                (
                    "communication",
                    _communication(doc["communication_backend"], version),
                ),
                ("compile backend", str(doc["compile_backend"])),
                (
                    "Triton",
                    _yes(can.get("is_triton_supported"), no=_no(doc["why_no_triton"])),
                ),
                ("graphs", _yes(can.get("supports_graphs"))),
                (
                    "streams",
                    _yes(
                        doc["streams"],
                        no="not supported (one queue; times come from the host's clock)",
                    ),
                ),
                (
                    "operators",
                    one_line(", ".join(sorted(doc["op_builders"]))) or "none",
                ),
                ("devices set by", f"{visible} ({_ids(ids)})" if visible else ""),
                (
                    "forwards",
                    ", ".join(f"{prefix}*" for prefix in doc["export_envs"] or ()),
                ),
                ("supported", ", ".join(name for name, yes in others.items() if yes)),
                (
                    "not supported",
                    ", ".join(name for name, yes in others.items() if not yes),
                ),
            )
        ),
    ]


def _problems(doc: dict[str, Any]) -> list[page.Part]:
    if not doc["problems"]:
        return []
    failed = ((what, one_line(why)) for what, why in doc["problems"].items())
    return [page.heading("What failed"), page.facts(failed)]


def _communication_of(accelerator: Accelerator) -> str:
    """Return the backend that a process group would use; accel-train knows the options of `accel run`."""
    from accel_train.launch.communication import communication_of

    return communication_of(accelerator)


def _communication(name: str | None, version: str) -> str:
    if name is None:
        return "none: see below"
    what = (
        " (the device has no collectives: through host memory, over gloo)"
        if name == "staged"
        else ""
    )
    return f"{name} {version}".strip() + what


def _yes(answer: bool | None, no: str = "no") -> str:
    return "not known" if answer is None else "yes" if answer else no


def _no(why: str | None) -> str:
    return f"no: {why}" if why else "no"


def _ids(ids: list[int | str] | None) -> str:
    if ids is None:
        return "not set: all devices"
    return f"now {','.join(map(str, ids))}" if ids else "now none"


def _size(amount: int | None) -> str:
    """Bytes as people read them; torch and its vendors count in powers of two."""
    return "-" if amount is None else f"{amount / 2**30:.1f} GiB"
