"""`accel ops`: list who provides each operator, whether it can be used, and whether it is built."""

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
from accel_train.child_accelerator import Chosen, Step, answer_of

__all__ = ["command"]

#: Seconds that one operator may take to say whether it can be used, and all to be found.
_PATIENCE = 120.0
_TITLES = ("OP", "PROVIDER", "BUILT", "VERDICT", "REASON")
_STYLES = {"compatible": "green", "not compatible": "yellow", "broken": "red"}


@click.command("ops")
@options.backend_name
@click.argument(
    "op",
    required=False,
    metavar="[OPERATOR]",
    shell_complete=lambda *given: _complete(given[2]),
)
@options.probe_timeout
@options.as_json
@click.pass_context
def command(
    ctx: click.Context,
    name: Pin | None,
    op: str | None,
    *,
    timeout: float | None,
    as_json: bool,
) -> None:
    """List the operators of a backend, and who provides each.

    With OPERATOR (FusedAdam, fused_adam or FusedAdamBuilder; NAME may be left out): list all providers of
    that operator in the order in which they are tried, and mark the one that is used. The exit status is then
    0 if a provider can be used, else 1. Needs torch; imports DeepSpeed if that is installed and has
    operators.
    """
    if (
        name is not None
        and op is None
        and not name.distribution
        and name.name not in installed_names()
    ):
        name, op = None, ctx.params["name"].name
    with answering(as_json=as_json) as output:
        settings = options.read_settings(timeout)
        # DeepSpeed's import alone may take half of it from a network disk.
        limit = max(_PATIENCE, settings.probe_timeout)
        asked = answer_of(document_in_child, {"op": op}, settings, name, timeout=limit)
        document = asked.answer
        if "unknown" in document:
            if as_json:
                output.write_json(
                    {"error": {"type": "UsageError", "message": document["unknown"]}}
                )
            raise click.UsageError(document["unknown"])
        if as_json:
            output.write_json(document)
        else:
            output.write_page((_page if op is None else _details)(document))
    ctx.exit(0 if op is None or _used(document["ops"][0])["compatible"] else 1)


def document_in_child(
    chosen: Chosen, arguments: dict[str, Any], step: Step
) -> dict[str, Any]:
    """In the child: return the document, or `{"unknown": sentence}` if no operator has the given name."""
    accelerator, op = chosen.accelerator, arguments["op"]
    step("operators()")
    known = accelerator.operators()
    names = (
        list(known)
        if op is None
        else [name for name in known if _word(name) == _word(op)]
    )
    if not names:
        return {"unknown": _unknown(op, known)}
    return _document(accelerator, [known[name] for name in names], step)


def _unknown(op: str, known: Iterable[str]) -> str:
    """Build the error that no builder is named `op`, with close matches."""
    by_word = {_word(name): name for name in known}
    by_word |= {name: name for name in installed_names()}
    close = [
        by_word[word] for word in difflib.get_close_matches(_word(op), by_word, n=3)
    ]
    message = f"no operator and no backend is named {op!r}."
    return message + (
        f" Did you mean {', '.join(close)}?" if close else " `accel ops` lists all."
    )


def _complete(incomplete: str) -> list[CompletionItem]:
    """Operators by name, of every installed plugin and of DeepSpeed, without torch."""
    from accel_core import discover
    from accel_core.op_providers import providers

    # A plugin that ends its process must not end the shell's question.
    os.environ[ACCEL_PROBE.name] = "isolated"
    backends = [c.backend for c in discover() if c.backend is not None]
    given = [provider for backend in backends for provider in providers(backend)]
    names = sorted(
        {op.removesuffix("Builder") for provider in given for op in provider.builders}
    )
    return [
        CompletionItem(name)
        for name in names
        if name.lower().startswith(incomplete.lower())
    ]


def _word(name: str) -> str:
    """`FusedAdamBuilder`, `FusedAdam` and `fused_adam` as one word."""
    return name.lower().replace("_", "").replace("-", "").removesuffix("builder")


@contextlib.contextmanager
def _chosen(accelerator: Accelerator) -> Iterator[None]:
    """With `accelerator` as DeepSpeed's too, which is imported for its builders and would look for one."""
    from accel_train import deepspeed  # an integration, so not at the top

    with accel_core.use_accelerator(accelerator):
        deepspeed.prepare()
        yield


# --- the document --------------------------------------------------------------------------------------


def _document(
    accelerator: Accelerator, operators: Iterable[Operator], step: Step
) -> dict[str, Any]:
    from accel_train import deepspeed

    source = accelerator.backend.provenance
    with _chosen(accelerator):
        ops = []
        for operator in operators:
            step(operator.name)
            ops.append(_op(operator))
    return {
        "backend": accelerator.name,
        "distribution": source.distribution if source else "",
        "deepspeed": deepspeed.is_installed(),
        "ops": ops,
    }


def _op(operator: Operator) -> dict[str, Any]:
    used = operator.used
    candidates = [_candidate(c, used=c is used) for c in operator.candidates]
    return {"op": operator.name, "candidates": candidates}


def _candidate(candidate: OpCandidate, *, used: bool) -> dict[str, Any]:
    module = sys.modules.get(getattr(candidate.builder_class, "__module__", ""))
    return {
        "provider": candidate.provider,
        "kind": candidate.kind,
        "used": used,
        "compatible": candidate.verdict == "compatible",
        "broken": candidate.verdict == "broken",
        "reason": candidate.reason,
        "built": candidate.is_built,
        "source": candidate.source,
        "file": getattr(module, "__file__", None),
    }


def _used(op: dict[str, Any]) -> dict[str, Any]:
    used: dict[str, Any] = next(c for c in op["candidates"] if c["used"])
    return used


# --- the pages -----------------------------------------------------------------------------------------


def _page(doc: dict[str, Any]) -> list[page.Part]:
    """The table of all operators."""
    rows = [_row(op) for op in doc["ops"]]
    note = page.paragraph(
        (f"For {doc['backend']} ({doc['distribution']}). ", ""), _more(doc)
    )
    return [page.table(_TITLES, rows), page.paragraph(), note]


def _more(doc: dict[str, Any]) -> page.Cell:
    more = "Details: `accel ops OPERATOR`."
    return (
        more
        if doc["deepspeed"]
        else f"{more} DeepSpeed, which has operators too, is not installed.",
        "",
    )


def _row(op: dict[str, Any]) -> list[page.Cell]:
    used = _used(op)
    before = op["candidates"][: op["candidates"].index(used)]
    passed = "; ".join(f"{c['provider']}: {c['reason']}" for c in before)
    return [
        (one_line(op["op"]), "bold"),
        (one_line(used["provider"]), ""),
        (_built(used), ""),
        (_verdict(used), _STYLES[_verdict(used)]),
        (one_line(used["reason"]), ""),
        (f"skipped: {one_line(passed)}" if passed else "", "dim"),
    ]


def _details(doc: dict[str, Any]) -> list[page.Part]:
    """All candidates of one operator."""
    (op,) = doc["ops"]
    used = _used(op)
    clause = "is used" if used["compatible"] else "would be tried, but cannot be used"
    parts: list[page.Part] = [
        page.paragraph(
            (one_line(op["op"]), "bold"),
            (f" on {doc['backend']}: {one_line(used['provider'])} {clause}.", ""),
        )
    ]
    for candidate in op["candidates"]:
        mark = "* " if candidate["used"] else ""
        parts.append(page.heading(f"{mark}{one_line(candidate['provider'])}"))
        parts.append(
            page.facts(
                (
                    ("verdict", _verdict(candidate)),
                    ("reason", one_line(candidate["reason"])),
                    ("built", _built(candidate)),
                    ("source", one_line(candidate["source"])),
                    ("file", one_line(candidate["file"] or "")),
                )
            )
        )
    if not used["compatible"]:
        parts += [page.heading("What to do"), page.paragraph((_advice(doc), ""))]
    return parts


def _advice(doc: dict[str, Any]) -> str:
    more = "" if doc["deepspeed"] else " or DeepSpeed (pip install deepspeed)"
    return f"Correct a reason above, or install a plugin{more} that provides it for {doc['backend']}."


def _verdict(candidate: dict[str, Any]) -> str:
    if candidate["broken"]:
        return "broken"
    return "compatible" if candidate["compatible"] else "not compatible"


def _built(candidate: dict[str, Any]) -> str:
    return {None: "not known", True: "yes", False: "no"}[candidate["built"]]
