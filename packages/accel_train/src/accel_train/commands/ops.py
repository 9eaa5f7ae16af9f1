"""Implement `accel ops`, which lists the provider of each operator, and whether it is usable and built."""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import click
from click.shell_completion import CompletionItem

import accel_core
from accel_core import Accelerator, OpCandidate, Operator
from accel_core.cli import output as options
from accel_core.cli import page
from accel_core.cli.output import answering
from accel_core.plugins import installed_names
from accel_core.settings import ACCEL_PROBE, Pin
from accel_core.text import one_line
from accel_train.child_accelerator import Chosen, Progress, run_in_child

__all__ = ["command"]

#: The minimum time limit for the child process, in seconds. The process checks every operator, and may import
#: DeepSpeed.
_MIN_TIMEOUT = 120.0
_TITLES = ("OP", "PROVIDER", "BUILT", "STATUS", "REASON")
_STYLES = {"compatible": "green", "not compatible": "yellow", "broken": "red"}


@click.command("ops")
@options.backend_name
@click.argument(
    "operator_name",
    required=False,
    metavar="[OPERATOR]",
    shell_complete=lambda _context, _param, incomplete: _complete_operator(incomplete),
)
@options.probe_timeout
@options.as_json
@click.pass_context
def command(
    ctx: click.Context,
    name: Pin | None,
    operator_name: str | None,
    *,
    timeout: float | None,
    as_json: bool,
) -> None:
    """List the operators of a backend, and who provides each.

    With OPERATOR, lists all providers of that operator in the order in which they are tried, and marks the
    provider that is used. The exit status is then 0 if a provider can be used, or otherwise 1. OPERATOR may
    be written as FusedAdam, fused_adam or FusedAdamBuilder, and does not need NAME before it. The command
    needs torch, and imports DeepSpeed if DeepSpeed is installed and has operators.
    """
    # A single argument may also be the name of an operator.
    if name is not None and operator_name is None and not _is_backend(name):
        operator_name = name.name
        name = None
    with answering(as_json=as_json) as output:
        settings = options.read_settings(timeout)
        result = run_in_child(
            document_in_child,
            {"operator_name": operator_name},
            settings,
            name,
            timeout=max(_MIN_TIMEOUT, settings.probe_timeout),
        )
        document = result.value
        if "unknown_name_message" in document:
            message = document["unknown_name_message"]
            if as_json:
                output.write_json({"error": {"type": "UsageError", "message": message}})
            raise click.UsageError(message)
        if as_json:
            output.write_json(document)
        elif operator_name is None:
            output.write_page(_operators_page(document))
        else:
            output.write_page(_operator_page(document))
    if operator_name is None:
        ctx.exit(0)
    named_operator, *_ = document["ops"]
    is_usable = _used_candidate(named_operator)["compatible"]
    ctx.exit(0 if is_usable else 1)


def _is_backend(name: Pin) -> bool:
    """Return whether `name`, the command's first argument, names a backend and not an operator."""
    return bool(name.distribution) or name.name in installed_names()


def document_in_child(
    chosen: Chosen, arguments: dict[str, Any], report_progress: Progress
) -> dict[str, Any]:
    """Return the JSON document about all operators, or about the operator `arguments["operator_name"]`.

    Returns `{"unknown_name_message": message}` if there is no such operator. This function runs in the child
    process.
    """
    accelerator = chosen.accelerator
    operator_name = arguments["operator_name"]
    report_progress("operators()")
    operators = accelerator.operators()
    if operator_name is None:
        return _operators_document(accelerator, operators.values(), report_progress)
    matching_operators = []
    for name, operator in operators.items():
        if _normalize(name) == _normalize(operator_name):
            matching_operators.append(operator)
    if not matching_operators:
        message = _unknown_name_message(operator_name, operators)
        return {"unknown_name_message": message}
    return _operators_document(accelerator, matching_operators, report_progress)


def _unknown_name_message(name: str, operator_names: Iterable[str]) -> str:
    """Return the error message that no operator or backend is called `name`, with similar names."""
    # For each normalized name, the name to suggest to the user.
    known_names = {_normalize(operator): operator for operator in operator_names}
    known_names.update({backend: backend for backend in installed_names()})
    matches = difflib.get_close_matches(_normalize(name), known_names, n=3)
    message = f"unknown operator or backend {name!r}."
    if not matches:
        return f"{message} `accel ops` lists all operators."
    similar_names = ", ".join(known_names[match] for match in matches)
    return f"{message} Did you mean {similar_names}?"


def _complete_operator(incomplete: str) -> list[CompletionItem]:
    """Return completions from the operators of all installed plugins and DeepSpeed, without using torch."""
    from accel_core import discover
    from accel_core.op_providers import providers

    # Plugins are loaded in separate processes, because a plugin that crashes must not end the completion.
    os.environ[ACCEL_PROBE.name] = "isolated"
    names = set()
    for candidate in discover():
        if candidate.backend is None:
            continue
        for provider in providers(candidate.backend):
            for builder in provider.builders:
                names.add(builder.removesuffix("Builder"))
    matching = []
    for name in sorted(names):
        if name.lower().startswith(incomplete.lower()):
            matching.append(CompletionItem(name))
    return matching


def _normalize(name: str) -> str:
    """Return an operator's normalized name.

    For example, `fusedadam` is the normalized name for `FusedAdamBuilder`, `FusedAdam` and `fused_adam`.
    """
    return name.lower().replace("_", "").replace("-", "").removesuffix("builder")


@contextlib.contextmanager
def _prepare_deepspeed_for(accelerator: Accelerator) -> Iterator[None]:
    """Make `accelerator` the chosen accelerator within a `with` block, also in DeepSpeed."""
    # Imported here so that an integration is imported only if it is needed.
    from accel_train import deepspeed

    with accel_core.use_accelerator(accelerator):
        deepspeed.prepare()
        yield


# --- the document --------------------------------------------------------------------------------------


def _operators_document(
    accelerator: Accelerator, operators: Iterable[Operator], report_progress: Progress
) -> dict[str, Any]:
    """Return the JSON document of `operators`: who provides each operator, and whether it can be used."""
    from accel_train import deepspeed

    provenance = accelerator.backend.provenance
    with _prepare_deepspeed_for(accelerator):
        ops = []
        for operator in operators:
            report_progress(operator.name)
            ops.append(_operator_entry(operator))
    return {
        "backend": accelerator.name,
        "distribution": provenance.distribution if provenance else "",
        "deepspeed": deepspeed.is_installed(),
        "ops": ops,
    }


def _operator_entry(operator: Operator) -> dict[str, Any]:
    """Return an operator's entry of the document: its name and all candidates."""
    entries = []
    for candidate in operator.candidates:
        is_used = candidate is operator.used
        entries.append(_candidate_entry(candidate, is_used=is_used))
    return {"op": operator.name, "candidates": entries}


def _candidate_entry(candidate: OpCandidate, *, is_used: bool) -> dict[str, Any]:
    """Return the JSON object of one candidate: a builder class that provides the operator."""
    module = sys.modules.get(getattr(candidate.builder_class, "__module__", ""))
    return {
        "provider": candidate.provider,
        "kind": candidate.kind,
        "used": is_used,
        "compatible": candidate.verdict == "compatible",
        "broken": candidate.verdict == "broken",
        "reason": candidate.reason,
        "built": candidate.is_built,
        "source": candidate.source,
        "file": getattr(module, "__file__", None),
    }


def _used_candidate(op: dict[str, Any]) -> dict[str, Any]:
    """Return the candidate that is used, from an operator's entry in the JSON document."""
    for candidate in op["candidates"]:
        if candidate["used"]:
            used_candidate: dict[str, Any] = candidate
            return used_candidate
    raise LookupError(f"{op['op']} has no candidate that is used")


# --- the pages -----------------------------------------------------------------------------------------


def _operators_page(document: dict[str, Any]) -> list[page.Part]:
    """Return the page with a table of all operators."""
    rows = [_operator_row(op) for op in document["ops"]]
    backend_text = f"Backend: {document['backend']} ({document['distribution']}). "
    note = page.paragraph((backend_text, ""), _footnote(document))
    return [page.table(_TITLES, rows), page.paragraph(), note]


def _footnote(document: dict[str, Any]) -> page.Cell:
    """Return the text below the table: how to see details, and whether DeepSpeed is missing."""
    text = "For details of an operator, run `accel ops OPERATOR`."
    if not document["deepspeed"]:
        text += " DeepSpeed also provides operators, but is not installed."
    return (text, "")


def _operator_row(op: dict[str, Any]) -> list[page.Cell]:
    """Return an operator's row in the printed table, with the provider in use and the skipped providers."""
    used = _used_candidate(op)
    # Candidates are in the order in which they are tried.
    used_index = op["candidates"].index(used)
    skipped_candidates = op["candidates"][:used_index]
    reasons = [
        f"{candidate['provider']}: {candidate['reason']}"
        for candidate in skipped_candidates
    ]
    skipped_text = ""
    if reasons:
        skipped_text = f"skipped: {one_line('; '.join(reasons))}"
    return [
        (one_line(op["op"]), "bold"),
        (one_line(used["provider"]), ""),
        (_built_text(used), ""),
        (_status(used), _STYLES[_status(used)]),
        (one_line(used["reason"]), ""),
        (skipped_text, "dim"),
    ]


def _operator_page(document: dict[str, Any]) -> list[page.Part]:
    """Return the page of the requested operator: all candidates in the order in which they are tried.

    Two operators may have the same name but for upper case and punctuation. Then the page shows both.
    """
    parts: list[page.Part] = []
    for op in document["ops"]:
        parts += _parts_of_operator(op, document)
    return parts


def _parts_of_operator(op: dict[str, Any], document: dict[str, Any]) -> list[page.Part]:
    """Return the part of the page about one operator; `document` is the whole JSON document."""
    used = _used_candidate(op)
    if used["compatible"]:
        clause = "is used"
    else:
        clause = "would be tried, but cannot be used"
    parts: list[page.Part] = [
        page.paragraph(
            (one_line(op["op"]), "bold"),
            (f" on {document['backend']}: {one_line(used['provider'])} {clause}.", ""),
        )
    ]
    for candidate in op["candidates"]:
        mark = "* " if candidate["used"] else ""
        parts.append(page.heading(f"{mark}{one_line(candidate['provider'])}"))
        parts.append(
            page.facts(
                (
                    ("status", _status(candidate)),
                    ("reason", one_line(candidate["reason"])),
                    ("built", _built_text(candidate)),
                    ("source", one_line(candidate["source"])),
                    ("file", one_line(candidate["file"] or "")),
                )
            )
        )
    if not used["compatible"]:
        next_step = page.paragraph((_next_step(document), ""))
        parts += [page.heading("What to do"), next_step]
    return parts


def _next_step(document: dict[str, Any]) -> str:
    """Return what the user can do if no candidate provides the operator."""
    step = (
        "Fix one of the problems above, or install a plugin that provides the operator for "
        f"{document['backend']}"
    )
    if not document["deepspeed"]:
        step += ", or install DeepSpeed: pip install deepspeed"
    return f"{step}."


def _status(candidate: dict[str, Any]) -> str:
    if candidate["broken"]:
        return "broken"
    if candidate["compatible"]:
        return "compatible"
    return "not compatible"


def _built_text(candidate: dict[str, Any]) -> str:
    is_built: bool | None = candidate["built"]
    if is_built is None:
        return "not known"
    return "yes" if is_built else "no"
