"""`accel info`: what an accelerator is and can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from accel_core.cli import options
from accel_core.cli.output import Output, answering

if TYPE_CHECKING:
    from rich.console import RenderableType

    from accel_core.settings import Pin

__all__ = ["info"]

#: Capabilities that the page tells in words of its own.
_TOLD = ("is_triton_supported", "supports_graphs", "is_fp8_supported", "is_fp64_supported")
_TITLES = ("INDEX", "DEVICE", "MEMORY", "FREE", "WHAT IT IS")


@click.command()
@options.backend_name
@options.as_json
@click.pass_context
def info(ctx: click.Context, name: Pin | None, *, as_json: bool) -> None:
    """Show what the chosen accelerator, or NAME, is and can do.

    Its devices and their memory, data types, communication and compile backends, streams, graphs and
    operators. Unlike the other commands this one needs torch and imports the vendor's package.
    """
    with answering(as_json=as_json) as output:
        options.read_settings()  # settings are judged before torch takes its second to import
        document = _document(name)
        if as_json:
            output.write_json(document)
        else:
            output.write(_page(document, output))
    ctx.exit(1 if document["problems"] else 0)


def _document(name: Pin | None) -> dict[str, Any]:
    """The portrait of the accelerator, and how it came to be chosen."""
    from accel_core.cli.live import live_accelerator
    from accel_core.cli.portrait import portray

    accelerator, how = live_accelerator(name)
    return {**portray(accelerator), "how": how.value if how else None}


# --- the page ------------------------------------------------------------------------------------------


def _page(doc: dict[str, Any], output: Output) -> str:
    from accel_core.cli import render

    return render.to_text(
        [*_identity(doc), *_devices(doc, output), *_abilities(doc), *_problems(doc)], output
    )


def _identity(doc: dict[str, Any]) -> list[RenderableType]:
    from accel_core.cli import render, words
    from accel_core.detection.records import How

    source = f" ({doc['distribution']} {doc['version']})"
    what = f": {words.clean(doc['description'])}" if doc["description"] else ""
    return [
        render.paragraph((doc["name"], "bold green"), (source, "dim"), (what, "")),
        render.facts(
            (
                ("chosen as", How(doc["how"]).words if doc["how"] else ""),
                ("priority", str(doc["priority"])),
                ("device type", str(doc["device_type"])),
                ("vendor import", ", ".join(doc["vendor_import"])),
                ("torch", doc["torch"]),
                ("read on", words.clean(doc["url"])),
            )
        ),
    ]


def _devices(doc: dict[str, Any], output: Output) -> list[RenderableType]:
    from accel_core.cli import render, words

    devices = doc["devices"]
    parts: list[RenderableType] = [render.heading(words.count(len(devices), "device"))]
    rows = [
        [
            (str(device["index"]), ""),
            (str(device["torch_device"] or "-"), "bold"),
            (_size(device["total_memory"]), ""),
            (_size(device["available_memory"]), ""),
            (words.clean(_product(device)), ""),
        ]
        for device in devices
    ]
    return [*parts, *render.listing(_TITLES, rows, output)] if rows else parts


def _product(device: dict[str, Any]) -> str:
    """The device's name and what else the vendor says of it."""
    capability = device["capability"]
    said = (
        device["name"],
        f"capability {'.'.join(map(str, capability))}" if capability else "",
        f"{device['multiprocessors']} compute units" if device["multiprocessors"] else "",
        f"PCI {device['pci_address']}" if device["pci_address"] else "",
        str(device["uuid"] or ""),
    )
    return ", ".join(part for part in said if part)


def _abilities(doc: dict[str, Any]) -> list[RenderableType]:
    from accel_core.cli import render, words

    can: dict[str, bool] = doc["capabilities"]
    version = ".".join(map(str, doc["communication_backend_version"] or ()))
    ids = doc["visible_device_ids"]
    visible = ", ".join(doc["visible_devices_envs"] or ())
    others = {name: yes for name, yes in can.items() if name not in _TOLD}
    return [
        render.heading("What it can do"),
        render.facts(
            (
                ("train in", ", ".join(doc["dtypes"] or ())),
                ("fp8, fp64", f"{_yes(can.get('is_fp8_supported'))}, {_yes(can.get('is_fp64_supported'))}"),
                ("communication", f"{doc['communication_backend']} {version}".strip()),
                ("compile backend", str(doc["compile_backend"])),
                ("Triton", _yes(can.get("is_triton_supported"))),
                ("graphs", _yes(can.get("supports_graphs"))),
                ("streams", _yes(doc["streams"], no="no, work is done when the call returns")),
                ("operators", words.clean(", ".join(sorted(doc["op_builders"]))) or "none"),
                ("devices set by", f"{visible} ({_ids(ids)})" if visible else ""),
                ("forwards", ", ".join(f"{prefix}*" for prefix in doc["export_envs"] or ())),
                ("says yes to", ", ".join(name for name, yes in others.items() if yes)),
                ("says no to", ", ".join(name for name, yes in others.items() if not yes)),
            )
        ),
    ]


def _problems(doc: dict[str, Any]) -> list[RenderableType]:
    from accel_core.cli import render, words

    if not doc["problems"]:
        return []
    failed = ((what, words.clean(why)) for what, why in doc["problems"].items())
    return [render.heading("What failed"), render.facts(failed)]


def _yes(answer: bool | None, no: str = "no") -> str:
    return "not known" if answer is None else "yes" if answer else no


def _ids(ids: list[int | str] | None) -> str:
    if ids is None:
        return "not set: all"
    return f"now {','.join(map(str, ids))}" if ids else "now none"


def _size(amount: int | None) -> str:
    """Bytes as people read them; torch and its vendors count in powers of two."""
    return "-" if amount is None else f"{amount / 2**30:.1f} GiB"
