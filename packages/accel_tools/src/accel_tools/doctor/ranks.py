"""`accel run --doctor`: each rank examines its machine before its script; rank 0 reports the differences.

    python -m accel_tools.doctor.ranks OWN...

The worker of each rank starts this in the rank's own environment, in a process of its own, which takes the
store and torch with it when it ends. `OWN` names the variables that have a different value on each rank. The
exit status is `REFUSED` if no rank's script may start.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import platform
import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

from accel_core import __version__, packages
from accel_core.errors import AccelError
from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.sandbox import processes
from accel_core.settings import read as read_settings
from accel_core.text import one_line
from accel_core.torch_import import AUTOLOAD
from accel_tools.doctor.records import Visit
from accel_tools.doctor.run import examine
from accel_tools.doctor.topics import machine, visible_devices
from accel_train.launch.agreement import enumerated, exchange_records
from accel_train.launch.rendezvous import Rank, Rendezvous, read_rank, rendezvous
from accel_train.launch.worker import REFUSED

__all__ = ["Looked", "compared", "main"]

#: Seconds for a rank's look beside the probe of its device, and for the others to come with theirs.
_LOOK, _MEET = 20.0, 60.0
#: Seconds for which a rank waits until rank 0's store is closed, whose port the script will want.
_CLOSING = 5.0
#: What differs between ranks of one host by design: ranks are bound to cores of their own; memory is in use.
_OF_A_RANK = ("cores", "memory", "time of cores")
#: Variables whose values are compared, with a shell's stars.
_COMPARED = re.compile(
    "|".join(
        fnmatch.translate(pattern)
        for pattern in (
            "DS_ACCELERATOR", "DS_ALLOW_DEPRECATED_FP16", "ACCEL_ALLOW", "ACCEL_BLOCK", "ACCEL_STRICT",
            "ACCEL_PROBE", "ACCEL_PROBE_TIMEOUT", "ACCEL_INTEGRATIONS",
            "ACCEL_COMMUNICATION_BACKEND", "ACCEL_VENDOR_DEFAULTS", "ACCEL_SIMULATE", "*_VISIBLE_DEVICES",
            "*_VISIBLE_MODULES", "*_VERSION", "ZE_AFFINITY_MASK", "ZE_FLAT_DEVICE_HIERARCHY",
            "ONEAPI_DEVICE_SELECTOR", "CUDA_DEVICE_ORDER", "HSA_OVERRIDE_GFX_VERSION",
            "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_DISABLE_REQUIRE", AUTOLOAD, "PYTORCH_CUDA_ALLOC_CONF",
            "PYTORCH_NPU_ALLOC_CONF", "OMP_NUM_THREADS", "ACCELERATE_USE_CPU", "ACCELERATE_TORCH_DEVICE",
            "PT_HPU_LAZY_MODE", "PT_HPU_LAZY_ACC_PAR_MODE",
        )
    )
)  # fmt: skip
#: Rank 0's word that no script may start.
_REFUSED = "refused"
#: The most that a rank's record may hold, in characters of one text and in facts.
_LONGEST, _MOST = 500, 400


class Looked(NamedTuple):
    """The observations of one rank."""

    rank: int
    host: str
    #: By name, in the order in which people read it.
    facts: dict[str, str]
    #: Why no accelerator can be chosen; empty where one can.
    problem: str = ""

    @classmethod
    def read(cls, rank: int, data: bytes) -> Looked:
        """Return the record that a rank left in the store; its content is untrusted."""
        try:
            host, facts, problem = json.loads(data)
            texts = {
                _text(name): _text(value) for name, value in list(facts.items())[:_MOST]
            }
            return cls(rank, _text(host), texts, _text(problem))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            return cls(
                rank,
                "not known",
                {"what it left": f"no record: {type(error).__name__}"},
            )


def main(own: Sequence[str]) -> int:
    """Examine this rank, compare with the others, and report; return the exit status.

    An error is reported, and the scripts start.
    """
    processes.end_with_parent(os.getppid())
    try:
        settings = read_settings()
        me = read_rank()
        look = _LOOK + settings.probe_timeout
        # Whoever hangs in a vendor's code, or in the store, is ended; its script starts then.
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 2 * (look + _MEET))
        return _compare(me, _look(me, own, look), look + _MEET)
    except AccelError as error:
        return _give_up(str(error))
    except PLUGIN_ERRORS as error:
        return _give_up(root_cause(error))


def _give_up(why: str) -> int:
    _say([f"not compared with the other ranks: {' '.join(why.split())}"])
    return 0


# --- one rank ------------------------------------------------------------------------------------------


def _look(me: Rank, own: Sequence[str], limit: float) -> Looked:
    """Collect this rank's observations: versions, its choice, findings on machine and visible devices."""
    end = time.monotonic() + limit
    settings = read_settings()
    # All but what the launcher has chosen is left alone: each rank would probe every vendor of its host.
    visit = Visit(
        replace(settings, allow=settings.pins or settings.allow), dict(os.environ)
    )
    facts = {
        "accel-core": __version__,
        "torch": packages.version("torch") or "not installed",
        "Python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} on {platform.machine()}",
    }
    problem = ""
    try:
        selection = visit.survey().selection
        if selection is None or selection.name is None:
            problem = selection.problem if selection else "nothing was probed"
        else:
            devices = next(
                (v.devices for v in selection.verdicts if v.name == selection.name),
                None,
            )
            count = (
                f", {devices} device{'' if devices == 1 else 's'}"
                if devices is not None
                else ""
            )
            facts["accelerator"] = f"{selection.name} ({selection.provenance}){count}"
    except AccelError as error:
        problem = str(error)
    except PLUGIN_ERRORS as error:
        facts["accelerator"] = f"not known: {root_cause(error)}"
    facts.update(
        (name, value)
        for name, value in sorted(visit.environ.items())
        if _COMPARED.match(name) and name not in own
    )
    topics = [machine.TOPIC]
    if not any("VISIBLE" in name or name == "ZE_AFFINITY_MASK" for name in own):
        topics.append(
            visible_devices.TOPIC
        )  # else each rank sees another device, as it was asked to
    for topic in examine(visit, topics, max(1.0, end - time.monotonic())):
        facts.update(_facts(topic.name, topic.findings))
        if topic.failed:
            facts[topic.title] = f"could not be examined: {topic.failed}"
    return Looked(me.rank, me.host, facts, problem)


def _facts(topic: str, findings: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Findings as facts: each by its code, and what it saw by name."""
    for finding in findings:
        name = f"{finding.about} {finding.code}".strip()
        if not any(word in finding.what for word in ("memory", "/dev/shm")):
            yield name, finding.what
        for fact, value in finding.facts.items():
            if not fact.startswith(_OF_A_RANK) and fact not in ("system", "Python"):
                yield f"{topic}: {fact}", value


# --- all ranks -----------------------------------------------------------------------------------------


def _compare(me: Rank, mine: Looked, timeout: float) -> int:
    def judge(others: Mapping[int, bytes]) -> str:
        seen = [
            mine,
            *(Looked.read(rank, data) for rank, data in sorted(others.items())),
        ]
        lines, refused = compared(seen, me.world_size, timeout)
        _say(
            lines
        )  # before the others know: whoever is refused ends, and the launcher ends the rest then
        return _REFUSED if refused else "start"

    if me.world_size == 1:
        return REFUSED if judge({}) == _REFUSED else 0
    # What torch would write of a store that was closed is what is waited for below.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    record = json.dumps([mine.host, mine.facts, mine.problem])
    met = rendezvous(me, None, None, timedelta(seconds=timeout))
    exchange = exchange_records(met.store, me, record, judge, timeout)
    if me.rank == 0:
        exchange.wait_for_readers()
    else:
        _wait_for_the_end(met)
    return REFUSED if exchange.verdict == _REFUSED.encode() else 0


def _wait_for_the_end(met: Rendezvous) -> None:
    """Wait until the store in rank 0's process is closed: otherwise the scripts would meet in it."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return
    end = time.monotonic() + _CLOSING
    with contextlib.suppress(RuntimeError):
        while time.monotonic() < end:
            met.store.check(["closed"])
            time.sleep(0.02)


def compared(
    seen: Sequence[Looked], world_size: int, timeout: float
) -> tuple[list[str], bool]:
    """Return lines for people on the differences between ranks, and whether scripts must not start.

    `seen` has the ranks that came, in order. Scripts must not start if a rank can choose no accelerator: its
    script would fail, and the others would wait for it.
    """
    problems = [look for look in seen if look.problem]
    lines = [
        f"{_of([look])} can choose no accelerator: {look.problem.splitlines()[0].rstrip('.')}"
        for look in problems
    ]
    absent = sorted(set(range(world_size)) - {look.rank for look in seen})
    if absent:
        lines.append(
            f"{enumerated(absent)} of {world_size} did not answer within {timeout:g} s; the script starts "
            "nonetheless"
        )
    differences = list(_differences(seen))
    if differences:
        count = f"{len(differences)} difference{'' if len(differences) == 1 else 's'}"
        lines += [f"{count} between the ranks", *differences]
    elif not problems and not absent:
        chosen = seen[0].facts.get("accelerator", "no accelerator is known")
        lines.append(
            f"the same on {_all(world_size)}: {chosen}, torch {seen[0].facts.get('torch')}"
        )
    elif len(seen) > 1:
        lines.append("no other difference between the ranks")
    if problems:
        lines.append(
            "no script was started; for details run `accel doctor` on that host"
        )
    return lines, bool(problems)


def _all(world_size: int) -> str:
    return "the one rank" if world_size == 1 else f"all {world_size} ranks"


def _differences(seen: Sequence[Looked]) -> Iterator[str]:
    """List facts that differ between ranks: each value with the ranks that have it."""
    for name in dict.fromkeys(name for look in seen for name in look.facts):
        groups: dict[str, list[Looked]] = {}
        for look in seen:
            groups.setdefault(look.facts.get(name, "none"), []).append(look)
        if len(groups) > 1:
            said = "; ".join(
                f"{value} on {_of(looks)}" for value, looks in groups.items()
            )
            yield f"  {name}: {said}"


def _of(looks: Sequence[Looked]) -> str:
    """`"ranks 0, 1 (host a)"`."""
    hosts = list(dict.fromkeys(look.host for look in looks))
    more = f" and {len(hosts) - 3} more" if len(hosts) > 3 else ""
    return f"{enumerated([look.rank for look in looks])} (host {', '.join(hosts[:3])}{more})"


def _say(lines: Sequence[str]) -> None:
    first, *rest = lines
    sys.stderr.write("\n".join([f"accel run --doctor: {first}", *rest, ""]))
    sys.stderr.flush()


def _text(value: object) -> str:
    return one_line(str(value))[:_LONGEST]


if __name__ == "__main__":
    if sys.path and sys.path[0] in ("", os.getcwd()):  # noqa: PTH109 - as `-m` writes it
        del sys.path[0]  # no plugin is loaded from wherever the job was started
    sys.exit(main(sys.argv[1:]))
