"""`accel declarations`: print the backends' declarations as JSON, for schedulers, images and scripts."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable
from dataclasses import Field, asdict, fields, is_dataclass
from typing import Any

import click

from accel_core import Backend, Verdict
from accel_core.cli import output as options
from accel_core.cli.output import answering
from accel_core.errors import BackendNotFoundError
from accel_core.explain import messages
from accel_core.isolation import IsolatedLoader
from accel_core.plugins import find_backends
from accel_core.settings import Pin

__all__ = ["command"]

_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_PAIRS = {"type": "array", "items": {**_TEXTS, "minItems": 2, "maxItems": 2}}
#: How JSON holds a field, by the type of its default; and fields of which that says too little.
_TYPES: dict[type, dict[str, Any]] = {
    str: _TEXT,
    bool: {"type": "boolean"},
    tuple: _TEXTS,
}
_FIELDS: dict[str, dict[str, Any]] = {
    "name": _TEXT,
    "priority": {"type": "integer"},
    "device_type": _TEXT,
    "hints": _PAIRS,
    "known_differences": _PAIRS,
}
#: 2: the fields stand in their records, as in a declaration.
_VERSION = 2
#: What is known besides the fields, each a text.
_ORIGIN = {
    "distribution": "The distribution that declares it.",
    "version": "That distribution's version.",
    "entry_point": "The value of its entry point; empty if built in.",
}
_UNREAD = {
    "name": "The entry point's name.",
    **_ORIGIN,
    "status": "`blocked`, `conflict`, `broken`, `invalid`, `timed_out`, `crashed` and so on.",
    "reason": "Why there is no declaration.",
    "hint": "The next step.",
}


@click.command("declarations")
@options.backend_name
@click.option(
    "--schema", is_flag=True, help="Print the JSON Schema of the document instead."
)
@options.probe_timeout
@click.option("--json", "_as_json", is_flag=True, hidden=True)
@click.pass_context
def command(
    ctx: click.Context,
    name: Pin | None,
    *,
    schema: bool,
    timeout: float | None,
    _as_json: bool,
) -> None:
    """Print what each backend, or NAME, declares, as JSON.

    Each field of the declarations: variables for visible devices, device nodes, PCI ids, resource names,
    communication and compile backends, and more. It reads installed plugins, and does not need torch. The
    exit status is 1 if a plugin fails.
    """
    with answering(as_json=True) as output:
        if schema:
            output.write(json.dumps(_schema(), indent=2))
            return
        settings = options.read_settings(timeout)
        found = find_backends(name, settings, IsolatedLoader(settings.probe_timeout))
        if name is not None and not found:
            asked = f"accel declarations {name}"
            raise BackendNotFoundError(messages.not_found_message(asked, name))
        unread = [each for each in found if each.backend is None]
        output.write_json(
            {
                "schema": _VERSION,
                "backends": [
                    _facts(each) for each in found if each.backend is not None
                ],
                "unread": [_why(each) for each in unread],
            }
        )
    ctx.exit(1 if any(each.status.is_failure for each in unread) else 0)


def _facts(candidate: Verdict) -> dict[str, Any]:
    """Give every field of the declaration, so that a new one appears by itself."""
    declared = asdict(candidate.declaration)
    del declared["provenance"]
    return {**declared, **_origin(candidate)}


def _why(unread: Verdict) -> dict[str, Any]:
    return {
        "name": unread.name,
        **_origin(unread),
        "status": unread.status.value,
        "reason": unread.reason,
        "hint": unread.hint,
    }


def _origin(each: Verdict) -> dict[str, str]:
    source = each.provenance
    return {
        "distribution": source.distribution,
        "version": source.version,
        "entry_point": source.value,
    }


def _schema() -> dict[str, Any]:
    """Describe the document, in the words of the declaration's own docstring."""
    declared = [field for field in fields(Backend) if field.name != "provenance"]
    backend = {**_described(Backend, declared), **_texts(_ORIGIN)}
    failure = {"type": _TEXT, "message": _TEXT}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What `accel declarations` prints",
        "oneOf": [
            _object(
                {
                    "schema": {"const": _VERSION},
                    "backends": {"type": "array", "items": _object(backend)},
                    "unread": {"type": "array", "items": _object(_texts(_UNREAD))},
                }
            ),
            _object({"schema": {"const": 1}, "error": _object(failure)}),
        ],
    }


def _described(kind: type, declared: Iterable[Field[Any]]) -> dict[str, Any]:
    """Describe the fields of `Backend` or of one of its records."""
    lines = inspect.getdoc(kind) or ""
    words = dict(re.findall(r"^    (\w+): (.*(?:\n        .*)*)", lines, re.MULTILINE))
    described: dict[str, Any] = {}
    for field in declared:
        if is_dataclass(field.default):
            form = _object(_described(type(field.default), fields(field.default)))
        else:
            form = _FIELDS.get(field.name) or _TYPES[type(field.default)]
        described[field.name] = {
            "description": " ".join(words[field.name].split()),
            **form,
        }
    return described


def _texts(described: dict[str, str]) -> dict[str, Any]:
    return {name: {"description": words, **_TEXT} for name, words in described.items()}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    """Require all of them; a later release may add some."""
    return {"type": "object", "required": [*properties], "properties": properties}
