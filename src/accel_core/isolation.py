"""Load plugins and probe devices in child processes.

A plugin or a vendor's package can exit, crash or hang the process that imports it. In a
child process, each of these becomes a verdict. Records are passed as JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from accel_core import build, hardware, plugins, torch_import
from accel_core.backend import Provenance, decode_backend
from accel_core.build import Group
from accel_core.log import LOGGER
from accel_core.sandbox import child
from accel_core.sandbox.guard import Step, selection_in_progress, steps_sent_to
from accel_core.verdict import Reason, Status, Verdict, Why

#: The verdicts on the declarations of each plugin.
VerdictsByPlugin = dict[Provenance, "tuple[Verdict, ...]"]


# --- Declarations -----------------------------------------------------------------------


class IsolatedLoader:
    """A loader that reads plugins' declarations in child processes, each plugin once.
    This process imports no plugin.

    One child loads all plugins. A plugin that fails in that child, or that the child
    did not reach before it died, is loaded alone in another child. `timeout` is the
    number of seconds that a child may take.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._loaded: VerdictsByPlugin = {}

    def __call__(self, sources: Sequence[Provenance]) -> list[tuple[Verdict, ...]]:
        """Return the declarations of each plugin in `sources`, in the same order."""
        not_loaded: list[Provenance] = []
        for source in sources:
            if source not in self._loaded and source not in not_loaded:
                not_loaded.append(source)
        if not_loaded:
            LOGGER.debug("load %s plugins in a child process", len(not_loaded))
            self._loaded |= self._load(not_loaded)
        return [self._loaded[source] for source in sources]

    def _load(self, sources: list[Provenance]) -> VerdictsByPlugin:
        if len(sources) == 1:
            return self._load_in_child(sources)
        loaded_together = self._load_in_child(sources)
        failed = []
        for source in sources:
            if _has_failed(loaded_together.get(source, ())):
                failed.append(source)
        result = dict(loaded_together)
        if not failed:
            return result
        cores = hardware.usable_cores()
        loaded_alone = child.run_in_parallel(self._load_alone, failed, cores)
        for source, verdicts in zip(failed, loaded_alone, strict=True):
            result[source] = verdicts
            loads_only_alone = source in loaded_together and not _has_failed(verdicts)
            if loads_only_alone:
                failures = loaded_together[source]
                result[source] = tuple(_blaming_other_plugins(v) for v in failures)
        return result

    def _load_alone(self, source: Provenance) -> tuple[Verdict, ...]:
        verdicts_by_plugin = self._load_in_child([source])
        return verdicts_by_plugin[source]

    def _load_in_child(self, sources: list[Provenance]) -> VerdictsByPlugin:
        """Return the declarations of each plugin, or an empty dictionary if a child
        with several plugins died.

        In that case any of the plugins may be the cause.
        """
        job = {"plugins": [asdict(source) for source in sources]}
        first = sources[0]
        unread = Verdict(plugins.name_before_loading(first), first)
        report = _run_or_verdict(_load_plugins_in_child, job, self._timeout, unread)
        if isinstance(report, Verdict):  # The child died.
            return {first: (report,)} if len(sources) == 1 else {}
        report.print_output()
        encoded: Any = report.answer
        result = {}
        for source, documents in zip(sources, encoded["plugins"], strict=True):
            result[source] = tuple(decode(document) for document in documents)
        return result


def _has_failed(verdicts: Sequence[Verdict]) -> bool:
    """Return whether a plugin was not loaded, or one of its verdicts is broken."""
    return not verdicts or any(v.status is Status.BROKEN for v in verdicts)


def _blaming_other_plugins(failed: Verdict) -> Verdict:
    """Return the verdict on a plugin that loads alone but fails together with other
    plugins.
    """
    assert failed.why is not None
    why = Why(Reason.PLUGIN_FAILS_BESIDE_OTHERS, failed.why.fields)
    return replace(failed, why=why)


def _load_plugins_in_child(
    job: dict[str, Any], stage: child.Stage
) -> dict[str, object]:
    """In the child process, load each plugin, and return the verdicts on its
    declarations or on its failure.
    """
    with steps_sent_to(_step_reporter(stage)), selection_in_progress():
        sources = [Provenance(**source) for source in job["plugins"]]
        verdicts_of_each = [plugins.load_plugin(source) for source in sources]
    encoded = []
    for verdicts in verdicts_of_each:
        encoded.append([encode(verdict) for verdict in verdicts])
    return {"plugins": encoded}


# --- A probe ----------------------------------------------------------------------------


def probe_in_child(
    verdict: Verdict, group: Group, timeout: float, *, pinned: bool
) -> Verdict:
    """Probe the backend with its plugin in a child process.

    The child imports other plugins only to explain an error.
    """
    others = [v for v in group.verdicts if not v.is_about(verdict)]
    job = {
        "verdict": encode(verdict),
        "others": [encode(other) for other in others],
        "pinned": pinned,
    }
    LOGGER.debug("probe %s (%s) in a child process", verdict.name, verdict.provenance)
    report = _run_or_verdict(_probe_in_child, job, timeout, verdict)
    if isinstance(report, Verdict):
        return report
    return _with_result(verdict, report.answer or {})


def _probe_in_child(job: dict[str, Any], stage: child.Stage) -> dict[str, object]:
    """In the child process, probe the backend and return the result."""
    verdict = decode(job["verdict"])
    others = [decode(other) for other in job["others"]]
    group = Group((verdict, *others), imports_to_explain=True)
    with steps_sent_to(_step_reporter(stage)), selection_in_progress():
        result = build.probe_device(verdict, group, pinned=job["pinned"])
    if "torch" in sys.modules:
        result = replace(result, slot=torch_import.private_use1_name())
    return _encode_result(result)


def _step_reporter(stage: child.Stage) -> Callable[[Step], None]:
    """Return a listener for steps that passes each step and its owner to the parent."""

    def report_step(step: Step) -> None:
        stage(step.text, owner=step.owner)

    return report_step


def _run_or_verdict(
    function: Callable[..., object],
    job: dict[str, Any],
    timeout: float,
    verdict: Verdict,
) -> Any:
    """Run a child process, and return its report, or a verdict if the child returned no answer."""
    try:
        report = child.run(function, job, timeout)
    except OSError as error:
        why = Why(Reason.NO_PROCESS, {"text": str(error)})
        return replace(verdict, status=Status.CRASHED, why=why, error=error)
    if report.answer is not None:
        return report
    if report.timed_out:  # The package may still work.
        facts: dict[str, Any] = {
            "seconds": report.timeout,
            "stage": report.stage,
            "owner": report.stage_facts.get("owner", ""),
        }
        why = Why(Reason.TIMED_OUT, facts)
        return replace(verdict, status=Status.TIMED_OUT, why=why)
    facts = {
        "did": "probed it" if verdict.backend else "loaded its plugin",
        "ending": report.ending,
        "stage": report.stage,
        "last_words": report.last_words,
        "owner": report.stage_facts.get("owner", ""),
    }
    why = Why(Reason.CRASHED, facts)
    return replace(verdict, status=Status.CRASHED, why=why, fatal=True)


# --- Records as JSON --------------------------------------------------------------------


def encode(verdict: Verdict) -> dict[str, object]:
    """Return a verdict as values that JSON can represent. Objects that exist only in
    this process are left out.
    """
    return {
        "name": verdict.name,
        "provenance": asdict(verdict.provenance),
        "backend": asdict(verdict.backend) if verdict.backend else None,
        "builtin": verdict.builtin,
        **_encode_result(verdict),
    }


def decode(document: Mapping[str, Any]) -> Verdict:
    """Return the verdict from the `document` that `encode` returned."""
    declared = document["backend"]
    verdict = Verdict(
        document["name"],
        Provenance(**document["provenance"]),
        decode_backend(declared) if declared else None,
        document["builtin"],
    )
    return _with_result(verdict, document)


def _encode_result(verdict: Verdict) -> dict[str, object]:
    """Return the fields of a verdict that a probe sets, as JSON values."""
    return {
        "status": verdict.status.value,
        "why": verdict.why.to_dict() if verdict.why else None,
        "devices": verdict.devices,
        "cause": verdict.cause,
        "where": verdict.where,
        "fatal": verdict.fatal,
        "slot": verdict.slot,
    }


def _with_result(verdict: Verdict, result: Mapping[str, Any]) -> Verdict:
    why = result["why"]
    return replace(
        verdict,
        status=Status(result["status"]),
        why=Why.from_dict(why) if why else None,
        devices=result["devices"],
        cause=result["cause"],
        where=result["where"],
        fatal=result["fatal"],
        slot=result["slot"],
    )
