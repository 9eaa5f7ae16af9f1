"""`accel ops`: who provides each operator, and whether it can be used and is built."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from typing import Any

import click

from accel_core import current
from accel_core.accelerators.interface import Accelerator
from accel_core.cli import options, text
from accel_core.cli.accelerator import named_or_chosen
from accel_core.cli.output import Output, answering
from accel_core.cli.page import Cell, Facts, Heading, Paragraph, Part, Table, paragraph
from accel_core.ops.catalogue import OpCandidate, Operator
from accel_core.settings import Pin

__all__ = ["command"]

_TITLES = ("OP", "PROVIDER", "BUILT", "VERDICT", "REASON")
_STYLES = {"compatible": "green", "not compatible": "yellow", "broken": "red"}


@click.command("ops")
@click.argument("op", required=False, metavar="[NAME]")
@options.backend_option
@options.as_json
@click.pass_context
def command(ctx: click.Context, op: str | None, *, backend: Pin | None, as_json: bool) -> None:
    """List the operators of the chosen accelerator, and who provides each.

    With NAME (FusedAdam, fused_adam or FusedAdamBuilder): all who provide it, in the order in which they are
    asked, and which of them is used. The exit status is then 0 when one can be used, and 1 when not. Needs
    torch; imports DeepSpeed where that is installed and has operators for the device.
    """
    with answering(as_json=as_json) as output:
        options.read_settings()
        accelerator, _ = named_or_chosen(backend)
        known = accelerator.operators()
        names = list(known) if op is None else [_meant(op, known, output, as_json=as_json)]
        document = _document(accelerator, [known[name] for name in names])
        if as_json:
            output.write_json(document)
        else:
            output.write_page((_page if op is None else _details)(document))
    ctx.exit(0 if op is None or _used(document["ops"][0])["compatible"] else 1)


def _meant(op: str, known: Iterable[str], output: Output, *, as_json: bool) -> str:
    """The builder that `op` names; a usage error with close matches where there is none."""
    by_word = {_word(name): name for name in known}
    if _word(op) in by_word:
        return by_word[_word(op)]
    close = [by_word[word] for word in difflib.get_close_matches(_word(op), by_word, n=3)]
    message = f"no operator is named {op!r}."
    message += f" Did you mean {', '.join(close)}?" if close else " `accel ops` lists all."
    if as_json:
        output.write_json({"error": {"type": "UsageError", "message": message}})
    raise click.UsageError(message)


def _word(name: str) -> str:
    """`FusedAdamBuilder`, `FusedAdam` and `fused_adam` as one word."""
    return name.lower().replace("_", "").replace("-", "").removesuffix("builder")


# --- the document --------------------------------------------------------------------------------------


def _document(accelerator: Accelerator, operators: Iterable[Operator]) -> dict[str, Any]:
    from accel_core.integrations import deepspeed  # an integration, so not at the top

    source = accelerator.backend.provenance
    with current.use_accelerator(accelerator):
        deepspeed.prepare()  # DeepSpeed, imported for its builders, is not to look for a device by itself
        ops = [_op(operator) for operator in operators]
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


def _page(doc: dict[str, Any]) -> list[Part]:
    """The table of all operators."""
    rows = [_row(op) for op in doc["ops"]]
    note = paragraph((f"For {doc['backend']} ({doc['distribution']}). ", ""), _more(doc))
    return [Table(_TITLES, rows), Paragraph(), note]


def _more(doc: dict[str, Any]) -> Cell:
    more = "`accel ops NAME` says more."
    return (more if doc["deepspeed"] else f"{more} DeepSpeed, which has operators too, is not installed.", "")


def _row(op: dict[str, Any]) -> list[Cell]:
    used = _used(op)
    before = op["candidates"][: op["candidates"].index(used)]
    passed = "; ".join(f"{c['provider']}: {c['reason']}" for c in before)
    return [
        (text.clean(op["op"]), "bold"),
        (text.clean(used["provider"]), ""),
        (_built(used), ""),
        (_verdict(used), _STYLES[_verdict(used)]),
        (text.clean(used["reason"]), ""),
        (f"passed over: {text.clean(passed)}" if passed else "", "dim"),
    ]


def _details(doc: dict[str, Any]) -> list[Part]:
    """All candidates of one operator."""
    (op,) = doc["ops"]
    used = _used(op)
    clause = "is used" if used["compatible"] else "would be asked, and cannot be used"
    parts: list[Part] = [
        paragraph(
            (text.clean(op["op"]), "bold"),
            (f" on {doc['backend']}: {text.clean(used['provider'])} {clause}.", ""),
        )
    ]
    for candidate in op["candidates"]:
        mark = "* " if candidate["used"] else ""
        parts.append(Heading(f"{mark}{text.clean(candidate['provider'])}"))
        parts.append(
            Facts(
                (
                    ("verdict", _verdict(candidate)),
                    ("reason", text.clean(candidate["reason"])),
                    ("built", _built(candidate)),
                    ("source", text.clean(candidate["source"])),
                    ("file", text.clean(candidate["file"] or "")),
                )
            )
        )
    if not used["compatible"]:
        parts += [Heading("What to do"), paragraph((_advice(doc), ""))]
    return parts


def _advice(doc: dict[str, Any]) -> str:
    more = "" if doc["deepspeed"] else " or DeepSpeed (pip install deepspeed)"
    return f"Mend what a reason above says, or install a plugin{more} that provides it for {doc['backend']}."


def _verdict(candidate: dict[str, Any]) -> str:
    if candidate["broken"]:
        return "broken"
    return "compatible" if candidate["compatible"] else "not compatible"


def _built(candidate: dict[str, Any]) -> str:
    return {None: "not known", True: "yes", False: "no"}[candidate["built"]]
