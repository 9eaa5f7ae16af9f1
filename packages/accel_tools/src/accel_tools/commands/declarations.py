"""`accel declarations`: print the declarations of backends as JSON.

Schedulers, scripts and tools that build container images read this document.
"""

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
#: The JSON Schema of a field, by the type of the field's default.
_TYPES: dict[type, dict[str, Any]] = {
    str: _TEXT,
    bool: {"type": "boolean"},
    tuple: _TEXTS,
}
#: The JSON Schema of fields without a default, or for which the default's type is not enough.
_FIELDS: dict[str, dict[str, Any]] = {
    "name": _TEXT,
    "priority": {"type": "integer"},
    "device_type": _TEXT,
    "hints": _PAIRS,
    "known_differences": _PAIRS,
}
#: The version of the document's schema. In version 2, fields are nested in their records, as in
#: a declaration.
_VERSION = 2
#: Fields with strings that are not part of the declaration, and their descriptions.
_ORIGIN = {
    "distribution": "The distribution that declares the backend.",
    "version": "The version of the distribution.",
    "entry_point": "The value of the backend's entry point, or an empty string for a built-in backend.",
}
#: Fields of a plugin without a readable declaration.
_UNREAD = {
    "name": "The name of the entry point.",
    **_ORIGIN,
    "status": "The backend's status, such as `blocked`, `conflict`, `broken` or `timed_out`.",
    "reason": "The reason why the declaration is missing.",
    "hint": "The next step.",
}


@click.command("declarations")
@options.backend_name
@click.option(
    "--schema",
    is_flag=True,
    help="Print the document's JSON Schema instead of the document.",
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
    """Print the declarations of all backends, or of NAME, as JSON.

    The document contains all fields of the declarations: variables for visible devices, device nodes, PCI
    ids, resource names, communication and compile backends, and more. The installed plugins are read; torch
    is not needed. Exit status: 0 = success, 1 = a plugin failed, 2 = usage error.
    """
    with answering(as_json=True) as output:
        if schema:
            output.write(json.dumps(_schema(), indent=2))
            return
        settings = options.read_settings(timeout)
        verdicts = find_backends(name, settings, IsolatedLoader(settings.probe_timeout))
        if name is not None and not verdicts:
            message = messages.not_found_message(f"accel declarations {name}", name)
            raise BackendNotFoundError(message)
        output.write_json(_document(verdicts))
    unread = [verdict for verdict in verdicts if verdict.backend is None]
    has_failed_plugin = any(verdict.status.is_failure for verdict in unread)
    ctx.exit(1 if has_failed_plugin else 0)


def _document(verdicts: Iterable[Verdict]) -> dict[str, Any]:
    """Return the declarations of all backends, and the reasons why some could not be read."""
    backends, unread = [], []
    for verdict in verdicts:
        if verdict.backend is None:
            unread.append(_failure_document(verdict))
        else:
            backends.append(_declaration_document(verdict))
    return {"schema": _VERSION, "backends": backends, "unread": unread}


def _declaration_document(verdict: Verdict) -> dict[str, Any]:
    """Return all fields of the declaration, and its origin."""
    fields_of_backend = asdict(verdict.declaration)
    del fields_of_backend["provenance"]
    return {**fields_of_backend, **_origin_document(verdict)}


def _failure_document(verdict: Verdict) -> dict[str, Any]:
    """Return an entry for a plugin whose declaration could not be read, with the reason."""
    return {
        "name": verdict.name,
        **_origin_document(verdict),
        "status": verdict.status.value,
        "reason": verdict.reason,
        "hint": verdict.hint,
    }


def _origin_document(verdict: Verdict) -> dict[str, str]:
    """Return the distribution and the entry point that declare a backend."""
    source = verdict.provenance
    return {
        "distribution": source.distribution,
        "version": source.version,
        "entry_point": source.value,
    }


def _schema() -> dict[str, Any]:
    """Return the JSON Schema of the document, with descriptions from the docstring of `Backend`."""
    declared_fields = [field for field in fields(Backend) if field.name != "provenance"]
    backend_properties = {
        **_field_schemas(Backend, declared_fields),
        **_text_schemas(_ORIGIN),
    }
    error_properties = {"type": _TEXT, "message": _TEXT}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The output of `accel declarations`",
        "oneOf": [
            _object_schema(
                {
                    "schema": {"const": _VERSION},
                    "backends": {
                        "type": "array",
                        "items": _object_schema(backend_properties),
                    },
                    "unread": {
                        "type": "array",
                        "items": _object_schema(_text_schemas(_UNREAD)),
                    },
                }
            ),
            _object_schema(
                {"schema": {"const": 1}, "error": _object_schema(error_properties)}
            ),
        ],
    }


def _field_schemas(
    record_class: type, record_fields: Iterable[Field[Any]]
) -> dict[str, Any]:
    """Return the JSON Schema of the fields of a dataclass: `Backend`, or the class of one of its fields.

    The docstring of `record_class` provides the descriptions.
    """
    docstring = inspect.getdoc(record_class) or ""
    # The section "Attributes" of the docstring has lines such as "    name: The backend's name.".
    # An attribute's description may continue on lines with a larger indent.
    attribute = re.compile(r"^    (\w+): (.*(?:\n        .*)*)", re.MULTILINE)
    descriptions = dict(attribute.findall(docstring))
    schemas: dict[str, Any] = {}
    for field in record_fields:
        default_type = type(field.default)
        if is_dataclass(field.default):
            nested_fields = fields(field.default)
            value_schema = _object_schema(_field_schemas(default_type, nested_fields))
        elif field.name in _FIELDS:
            value_schema = _FIELDS[field.name]
        else:
            value_schema = _TYPES[default_type]
        schemas[field.name] = {
            "description": " ".join(descriptions[field.name].split()),
            **value_schema,
        }
    return schemas


def _text_schemas(descriptions: dict[str, str]) -> dict[str, Any]:
    """Return the JSON Schema of fields that contain strings."""
    return {name: {"description": text, **_TEXT} for name, text in descriptions.items()}


def _object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of an object in which all `properties` are required.

    Other properties are allowed, because a later release may add properties.
    """
    return {"type": "object", "required": [*properties], "properties": properties}
