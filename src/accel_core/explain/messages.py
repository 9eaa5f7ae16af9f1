"""Show verdicts in rows, and write the CPU fallback warning and the errors of a failed choice.

These texts are what a user reads first. They contain no device node patterns and no PCI
ids, and repeat nothing. `accel why NAME` and `accel list --all` show all details.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from accel_core.backend import Provenance
from accel_core.explain.reasons import OTHER_KINDS, how_to_declare, words_of
from accel_core.hardware import vendors
from accel_core.hardware.bus import none_found
from accel_core.packages import normalize_distribution
from accel_core.plugins import declaring_distributions, installed_names
from accel_core.settings import Pin, Settings
from accel_core.text import did_you_mean, one_line
from accel_core.torch_import import torch_build
from accel_core.verdict import Reason, Status, Verdict, Why, Words

# --- Verdicts in rows -------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One line of a list of backends: the verdict on a backend, and a reason that
    covers all verdicts that share the line.
    """

    verdict: Verdict
    reason: str

    def line(self, rows: Iterable[Row]) -> str:
        """Return this row as a line of text.

        `rows` are all rows of the text. If another row has the same backend name, the
        line also contains the name of the hardware.
        """
        return self.verdict.line([row.verdict for row in rows], self.reason)


#: If at least this many backends lack only a package, one line names all of them.
_MIN_ON_ONE_LINE = 3


def fold_rows(
    verdicts: Iterable[Verdict], *, verbose: bool = False
) -> tuple[list[Row], list[Verdict]]:
    """Return two lists: the rows to show, and the verdicts to show together in one line.

    Backends that lack only a package are shown together in one line, unless there are
    few of them. In that case, each gets a row with its next step. An error that several
    backends share, such as a failed import of torch, is written in full only in the
    first row. With `verbose`, the reasons contain the signs of the hardware.
    """
    all_verdicts = list(verdicts)
    on_one_line = _verdicts_on_one_line(all_verdicts)
    rows: list[Row] = []
    first_name_by_cause: dict[str, str] = {}
    for group in _group_namesakes(all_verdicts):
        first_verdict = group[0]
        if first_verdict in on_one_line:
            continue
        cause_stated_by = ""
        if first_verdict.cause:
            first_name = first_name_by_cause.setdefault(
                first_verdict.cause, first_verdict.name
            )
            if first_name != first_verdict.name:
                cause_stated_by = first_name
        reason = _group_reason(group, verbose=verbose, cause_stated_by=cause_stated_by)
        rows.append(Row(first_verdict, reason))
    # A backend of which one declaration has a row is not repeated in the line.
    in_rows = {_name_and_distribution(row.verdict) for row in rows}
    not_in_rows = [v for v in on_one_line if _name_and_distribution(v) not in in_rows]
    return rows, not_in_rows


def _verdicts_on_one_line(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts that share one line, because only a package is missing."""
    uninstalled = [v for v in verdicts if _lacks_only_a_package(v)]
    uninstalled_names = {verdict.name for verdict in uninstalled}
    if len(uninstalled_names) >= _MIN_ON_ONE_LINE:
        return uninstalled
    if torch_build() is not None:
        return []
    # The next step for backends that need only torch is shown for torch itself.
    return [v for v in uninstalled if v.vendor_import == ("torch",)]


def _group_reason(
    group: Sequence[Verdict], *, verbose: bool, cause_stated_by: str = ""
) -> str:
    """Return the combined reason of verdicts that share a row.

    The reason refers to the backend `cause_stated_by`, if there is one, instead of
    stating the cause.
    """
    if not verbose and _is_absent(group[0]):
        return none_found(verdict.hardware for verdict in group)
    reasons = [words_of(verdict, plain=not verbose) for verdict in group]
    if cause_stated_by:
        reasons = [words.referring_to(cause_stated_by) for words in reasons]
    return _join_reasons(reasons)


def _group_namesakes(verdicts: Sequence[Verdict]) -> list[list[Verdict]]:
    """Group the verdicts that share a row.

    CUDA and ROCm, for example, are two declarations of `cuda`. Verdicts with the same
    name, distribution, status and next step form one group.
    """
    groups: dict[object, list[Verdict]] = {}
    for verdict in relevant(verdicts):
        # Absent devices share one clause, even if their next steps differ.
        step = "" if _is_absent(verdict) else verdict.hint
        key = (_name_and_distribution(verdict), verdict.status, step)
        groups.setdefault(key, []).append(verdict)
    return list(groups.values())


def relevant(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts without those that do not matter, because another backend of
    the same name has more to report.

    CUDA and ROCm, for example, are two backends called `cuda`. The owner of an NVIDIA
    GPU does not need to read that no AMD GPU was found, or that a CUDA build of torch
    lacks ROCm.
    """
    verdicts_by_key: dict[object, list[Verdict]] = {}
    for verdict in verdicts:
        key = _name_and_distribution(verdict)
        verdicts_by_key.setdefault(key, []).append(verdict)
    relevant_verdicts = []
    for verdict in verdicts:
        namesakes = verdicts_by_key[_name_and_distribution(verdict)]
        if not _is_irrelevant(verdict, namesakes):
            relevant_verdicts.append(verdict)
    return relevant_verdicts


def _is_irrelevant(verdict: Verdict, namesakes: Sequence[Verdict]) -> bool:
    needs_other_build = _is_for_other_torch_build(verdict)
    if needs_other_build and _is_torch_built_for_namesake(verdict, namesakes):
        return True
    if not _lacks_only_a_device(verdict):
        return False
    # A missing device matters only if no backend of the same name has more to report.
    for namesake in namesakes:
        is_absent = _lacks_only_a_device(namesake) or _lacks_only_a_package(namesake)
        if not is_absent:
            return True
    return False


def _is_torch_built_for_namesake(
    verdict: Verdict, namesakes: Sequence[Verdict]
) -> bool:
    """Return whether torch is built for the hardware of a backend of the same name,
    which may be present.
    """
    others = [v for v in namesakes if v.hardware != verdict.hardware]
    evidence_of_others = [other.evidence for other in others]
    if verdict.evidence and verdict.evidence not in evidence_of_others:
        return False  # The hardware of this verdict is present.
    for other in others:
        may_be_present = not other.absent
        is_torch_built_for_other = not _is_for_other_torch_build(other)
        if may_be_present and is_torch_built_for_other:
            return True
    return False


def _join_reasons(reasons: Iterable[Words]) -> str:
    """Join the reasons. If all of them have the same second clause, write that clause
    once.
    """
    words_by_text = {words.text: words for words in reasons}  # each reason once
    different_words = list(words_by_text.values())
    endings = {(words.second_clause, words.cause) for words in different_words}
    if len(different_words) == 1 or len(endings) > 1:
        return "; ".join(words_by_text)
    [(shared_clause, shared_cause)] = endings
    if not shared_clause:
        return "; ".join(words_by_text)
    clauses = "; ".join(words.clause for words in different_words)
    joined = Words(clauses, second_clause=shared_clause, cause=shared_cause)
    return joined.text


def _name_and_distribution(verdict: Verdict) -> tuple[str, str]:
    return verdict.name, normalize_distribution(verdict.distribution)


def _lacks_only_a_package(verdict: Verdict) -> bool:
    """Return whether only a package is missing, on a machine without the hardware for
    it.
    """
    return verdict.status is Status.NOT_INSTALLED and not verdict.hardware_signs


def _lacks_only_a_device(verdict: Verdict) -> bool:
    """Return whether only a device is missing."""
    if verdict.hardware_signs or verdict.package_failure is not None:
        return False
    return verdict.status is Status.NO_DEVICE


def _is_for_other_torch_build(verdict: Verdict) -> bool:
    """Return whether the devices were not counted because torch is built for other
    devices.
    """
    if verdict.status is not Status.NO_DEVICE or verdict.absent:
        return False
    # None means that no probe counted the devices, because torch is built for others.
    return verdict.devices is None


def _is_absent(verdict: Verdict) -> bool:
    return verdict.absent and _lacks_only_a_device(verdict)


def is_merely_absent(verdict: Verdict) -> bool:
    """Return whether the backend only lacks a device or a package, and nothing needs repair."""
    if verdict.needs_attention:
        return False
    return _is_absent(verdict) or _lacks_only_a_package(verdict)


def uninstalled_clause(verdicts: Iterable[Verdict]) -> str:
    """Return a text such as `"need torch: cpu, cuda"` on backends that lack only a
    package, or an empty string without `verdicts`.
    """
    names_by_reason: dict[str, list[str]] = {}
    for verdict in verdicts:
        reason = "vendor's package not installed"
        if verdict.vendor_import == ("torch",):
            reason = "need torch"
        names = names_by_reason.setdefault(reason, [])
        name = one_line(verdict.name)
        if name not in names:
            names.append(name)
    clauses = []
    for reason, names in names_by_reason.items():
        clauses.append(f"{reason}: {', '.join(names)}")
    return "; ".join(clauses)


def troubleshooting_line() -> str:
    """Return a line that names the troubleshooting page for GPUs that are not found."""
    page = vendors.documentation_page("howto/not-found.md")
    return f"Why is my GPU not found? See {page}."


# --- The fallback -----------------------------------------------------------------------


def fallback_message(
    verdicts: Iterable[Verdict], missing_plugins: Sequence[str], *, verbose: bool
) -> str:
    """Return a message on why the CPU is used although a plugin for an accelerator is
    installed or an accelerator is present.

    `missing_plugins` has a line for each device without a plugin. The message is one
    line, unless `verbose` is set, hardware is present, or an installed package is
    broken.
    """
    reported = [v for v in verdicts if v.is_reported]
    if verbose or missing_plugins or any(v.needs_attention for v in reported):
        return (
            "No usable accelerator; falling back to the CPU:\n"
            f"{reason_lines(reported, missing_plugins)}\n"
            "Run `accel why` for details, or set DS_ACCELERATOR=cpu to use the CPU without "
            "this warning."
        )
    return (
        f"No usable accelerator; falling back to the CPU ({_reasons_on_one_line(reported)}). "
        "Run `accel why` for details, or set DS_ACCELERATOR=cpu to silence this warning."
    )


def _reasons_on_one_line(reported: Sequence[Verdict]) -> str:
    """Return the reasons in one line. All missing devices share one clause."""
    clauses = _labelled_reasons(reported)
    absent_hardware, uninstalled = [], []
    for verdict in reported:
        if verdict.absent and verdict.status is Status.NO_DEVICE:
            absent_hardware.append(verdict.hardware)
        if _lacks_only_a_package(verdict):
            uninstalled.append(verdict)
    if absent_hardware:
        clauses.append(none_found(absent_hardware))
    if not clauses:
        return uninstalled_clause(uninstalled)
    return "; ".join(clauses)


def _labelled_reasons(reported: Sequence[Verdict]) -> list[str]:
    """Return the reasons of backends that need attention, each preceded by the
    backend's label.
    """
    rows, _on_one_line = fold_rows(reported)
    rows = [row for row in rows if not is_merely_absent(row.verdict)]
    shown = [row.verdict for row in rows]
    return [f"{row.verdict.label(shown)}: {row.reason}" for row in rows]


def reason_lines(verdicts: Iterable[Verdict], missing_plugins: Iterable[str]) -> str:
    """Return a line on each accelerator that is present or has a plugin, with the
    reason why the accelerator is not used.

    The lines `missing_plugins`, on devices without a plugin, come first. Other present
    accelerators follow, and then absent ones.
    """

    def sort_key(verdict: Verdict) -> tuple[bool, bool]:
        # False sorts before True.
        return not verdict.hardware_signs, not verdict.needs_attention

    reported = sorted([v for v in verdicts if v.is_reported], key=sort_key)
    rows, uninstalled = fold_rows(reported, verbose=True)
    lines = [*missing_plugins]
    for row in rows:
        lines.append(row.line(rows))
    if uninstalled:
        lines.append(uninstalled_clause(uninstalled))
    return _indented(lines)


# --- Errors -----------------------------------------------------------------------------


def not_declared_verdict(pin: Pin) -> Verdict:
    """Return the verdict on a backend that was requested by name and that no installed
    plugin declares.
    """
    why = Why(Reason.NOT_DECLARED, {"distribution": pin.distribution})
    source = Provenance(pin.distribution, "")
    return Verdict(pin.name, source, status=Status.NOT_INSTALLED, why=why)


def other_pins_advice(*, can_pin_cpu: bool) -> str:
    """Return advice on how to choose another backend. If `can_pin_cpu` is set, the
    advice includes the CPU.

    The usable backends are not named, because a message does not probe them.
    """
    if can_pin_cpu:
        return (
            "To use the CPU instead, set DS_ACCELERATOR=cpu. `accel list` shows the "
            "usable backends."
        )
    return "`accel list` shows the usable backends."


def not_found_message(request: str, pin: Pin, *, can_pin_cpu: bool = False) -> str:
    """Return the error message for a backend that was requested by name but is not
    installed.

    `pin` is the requested name, with a distribution or without. `request` is the
    setting, call or command that contains the name. If `can_pin_cpu` is set, the
    message may suggest `DS_ACCELERATOR=cpu`.
    """
    names = installed_names()
    if pin.name in names and not pin.distribution:
        # `names` are the names of entry points.
        return (
            f"{request}: the plugin with the entry point {pin.name} declares a backend "
            "with another name. `accel list` shows that name."
        )
    reason = not_declared_verdict(pin).reason
    advice = _unknown_name_advice(pin, names, can_pin_cpu=can_pin_cpu)
    return f"{request}: {reason}. Installed: {', '.join(names)}. {advice}"


def _unknown_name_advice(pin: Pin, names: Sequence[str], *, can_pin_cpu: bool) -> str:
    """Return advice on a pinned name that no plugin declares."""
    if pin.name in ("gpu", "gpus"):
        return _gpu_advice(names, can_pin_cpu=can_pin_cpu)
    owners = sorted(declaring_distributions(pin.name)) if pin.distribution else []
    if owners:
        return f"{pin.name} is declared by {', '.join(owners)}."
    # A known name is not misspelt: its plugin is missing.
    is_known = pin.name in vendors.FIRST_PARTY or pin.name in OTHER_KINDS
    suggestion = ""
    if not is_known and not pin.distribution:
        suggestion = did_you_mean(pin.name, names).strip()
    if suggestion:
        return suggestion
    return _next_step(how_to_declare(pin))


def _gpu_advice(names: Sequence[str], *, can_pin_cpu: bool) -> str:
    """Return advice on the pin `gpu`, which is not a backend's name."""
    gpus = {vendor.backend for vendor in vendors.VENDORS if vendor.is_gpu}
    installed = [name for name in names if name in gpus]
    if not installed:
        advice = other_pins_advice(can_pin_cpu=can_pin_cpu)
        return f"No backend for a GPU is installed. {advice}"
    return (
        f"For a GPU, use one of these backends: {', '.join(installed)}. `accel list` "
        "shows which of them are usable."
    )


def conflict_message(request: str, pin: Pin, claimants: Sequence[Verdict]) -> str:
    """Return the error message for a backend that was requested by name and that
    several distributions declare.

    `claimants` are the verdicts on the backends of these distributions.
    """
    distributions = " and ".join(str(v.provenance) for v in claimants)
    pins = " or ".join(f"{pin.name}@{v.distribution}" for v in claimants)
    return (
        f"{request}: several distributions declare {pin.name}: {distributions}. "
        f"Next step: use {pins}."
    )


def no_pin_usable_message(
    settings: Settings, verdicts: Sequence[Verdict], *, can_pin_cpu: bool
) -> str:
    """Return the error message if none of the backends that were requested by name is
    usable.
    """
    advice = other_pins_advice(can_pin_cpu=can_pin_cpu)
    rows = []
    for group in _group_namesakes(verdicts):
        reason = _group_reason(group, verbose=True)
        rows.append(Row(group[0], reason))
    if len(rows) > 1:
        lines = _indented(row.line(rows) for row in rows)
        return (
            f"{settings.request}: none of these backends is usable.\n{lines}\n{advice}"
        )
    only_row = rows[0]
    verdict = only_row.verdict
    problem = "is not usable"
    if verdict.status is Status.TIMED_OUT:
        problem = "did not respond in time"
    message = f"{verdict.name} ({verdict.provenance}) {problem}: {only_row.reason}."
    if verdict.hint:
        message += f" {_next_step(verdict.hint)}"
    return f"{message} {advice}"


def unknown_choice_message(undecided: Sequence[Verdict]) -> str:
    """Return the message for a choice of backend that a command cannot predict.

    `undecided` are the verdicts on backends that might be chosen. Their probes crashed
    a child process or did not respond in time.
    """
    label_by_name = {}
    for verdict in undecided:
        if verdict.fatal:
            label_by_name[verdict.name] = f"{verdict.name} ({verdict.provenance})"
    if label_by_name:
        crashing = " and ".join(label_by_name.values())
        names = ",".join(label_by_name)
        step = _next_step(f"set ACCEL_PROBE=isolated, or ACCEL_BLOCK={names}")
        return (
            f"{crashing} would crash a program while the program chooses an accelerator. "
            f"{step}"
        )
    reasons = [f"{v.name} ({v.provenance}): {v.reason}" for v in undecided]
    step = _next_step(undecided[0].hint)
    return f"The choice is unknown: {'; '.join(reasons)}. {step}"


def nothing_usable_message(verdicts: Sequence[Verdict]) -> str:
    """Return the error message for a choice by priority in which no backend is usable,
    not even the CPU.
    """
    problem = "The settings exclude every usable backend."
    cpu = _verdict_on_cpu(verdicts)
    if cpu is not None and cpu.status is Status.NOT_INSTALLED:
        setup = vendors.command_with_its_package("accel setup")
        problem = f"torch is not installed. {_next_step(setup)}"
    elif cpu is not None and cpu.status.is_failure:
        problem = f"{cpu.reason}. {_next_step(cpu.hint)}".rstrip()
        # All built-in backends fail for the same reason, because they need torch.
        verdicts = [v for v in verdicts if not v.builtin]
    lines = _indented(verdict.line(verdicts) for verdict in verdicts)
    return f"{problem}\n{lines}".rstrip()


def _verdict_on_cpu(verdicts: Iterable[Verdict]) -> Verdict | None:
    for verdict in verdicts:
        if verdict.name == "cpu":
            return verdict
    return None


def cpu_refused_message(
    settings: Settings, verdicts: Iterable[Verdict], missing_plugins: Iterable[str]
) -> str:
    """Return the error message if `ACCEL_STRICT` forbids the fallback to the CPU.

    `missing_plugins` has a line for each device without a plugin.
    """
    reasons = reason_lines(verdicts, missing_plugins)
    repair = "Repair one of these backends"
    if not reasons:
        reasons = "  no plugin for an accelerator is installed"
        repair = "Install the plugin for your accelerator"
    return (
        f"ACCEL_STRICT={settings.strict} forbids the CPU fallback, and no accelerator is usable:\n"
        f"{reasons}\n"
        f"{repair}, or set DS_ACCELERATOR=cpu to use the CPU."
    )


def _indented(lines: Iterable[str]) -> str:
    return "\n".join(f"  {line}" for line in lines)


def _next_step(hint: str) -> str:
    """Return the hint as a sentence, or an empty string without a hint. The hint's
    words stay unchanged, because it may be a command.
    """
    if not hint:
        return ""
    return f"Next step: {hint.rstrip('.')}."
