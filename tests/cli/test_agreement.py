"""One decision: the commands say of every choice what `get_accelerator()` then does, by its own words."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pytest

#: Runs the commands and then makes the choice, in one process that starts with nothing chosen.
_ASK = """
import contextlib, io, json, sys, warnings
warnings.simplefilter("ignore")
from click.testing import CliRunner
from accel_core.cli import accel

def run(*arguments):
    result = CliRunner().invoke(accel, list(arguments), catch_exceptions=False)
    return [result.exit_code, result.stdout]

def document(*arguments):
    return json.loads(run(*arguments, "--json")[1])

seen = {{"list": document("list"), "why": document("why"), "cases": {{}}}}
for name in {names!r}:
    seen["cases"][name] = document("why", name).get("backends", [])
if {texts!r}:
    seen["texts"] = {{name: run("why", name)[1] for name in {names!r}}}
    seen["texts"]["list"] = run("list")[1]
    seen["status of why"], seen["texts"]["why"] = run("why")
assert "torch" not in sys.modules
import accel_core
try:
    found = accel_core.get_accelerator()
    seen["chosen"], seen["distribution"] = found.name, found.backend.distribution
    seen["problem"], seen["how"] = "", accel_core.selection().how.value
except accel_core.AccelError as error:
    seen["chosen"], seen["distribution"], seen["problem"], seen["how"] = None, None, str(error), None
print(json.dumps(seen))
"""

USABLE = "ProbeResult(True, devices=2)"
NO_DEVICE = "ProbeResult(False, 'nothing on the bus', devices=0)"


def nothing(accel: Any) -> None:
    """Nothing but what is built in."""


def broken(accel: Any) -> None:
    accel.world.plugin("npu", "raise ImportError('libfoo.so')")


def working(accel: Any) -> None:
    accel.install("npu", USABLE, priority=990)
    accel.install("mlu", USABLE, priority=300)


def absent(accel: Any) -> None:
    accel.install("npu", NO_DEVICE, priority=990)
    accel.install("mlu", USABLE, priority=300)


def only_absent(accel: Any) -> None:
    accel.install("npu", NO_DEVICE, priority=990)


def unbuildable(accel: Any) -> None:
    """Its probe says that a device is missing, which a pin forgives, but it cannot be built either."""
    accel.install("npu", NO_DEVICE, priority=990, accelerator="json:missing")


def rivals(accel: Any) -> None:
    accel.install("npu", USABLE, distribution="first-npu")
    accel.install("npu", USABLE, distribution="second-npu")
    accel.install("mlu", USABLE, priority=300)


class Case(NamedTuple):
    world: Any
    settings: dict[str, str]
    chosen: str | None
    #: Backends that are asked for by name.
    names: tuple[str, ...] = ("npu", "cpu")


CASES = {
    "nothing installed": Case(nothing, {}, "cpu", ("generic", "cpu")),
    "nothing installed, strict": Case(nothing, {"ACCEL_STRICT": "1"}, "cpu", ("cpu",)),
    "broken": Case(broken, {}, "cpu"),
    "broken, strict": Case(broken, {"ACCEL_STRICT": "1"}, None),
    "broken, strict, but pinned": Case(broken, {"ACCEL_STRICT": "1", "DS_ACCELERATOR": "cpu"}, "cpu"),
    "broken and pinned": Case(broken, {"DS_ACCELERATOR": "npu"}, None),
    "generic pinned": Case(nothing, {"DS_ACCELERATOR": "generic"}, None, ("generic", "cpu")),
    "two work": Case(working, {}, "npu", ("npu", "mlu")),
    "two work, one blocked": Case(working, {"ACCEL_BLOCK": "npu"}, "mlu", ("npu", "mlu")),
    "two work, one allowed": Case(working, {"ACCEL_ALLOW": "mlu"}, "mlu", ("npu", "mlu")),
    "two work, the lower pinned": Case(working, {"DS_ACCELERATOR": "mlu"}, "mlu", ("npu", "mlu")),
    "pinned and blocked": Case(working, {"DS_ACCELERATOR": "npu", "ACCEL_BLOCK": "npu"}, None),
    "no device": Case(absent, {}, "mlu", ("npu", "mlu")),
    "no device, pinned": Case(absent, {"DS_ACCELERATOR": "npu"}, "npu"),
    "no device, preferred": Case(absent, {"DS_ACCELERATOR": "npu,mlu"}, "mlu", ("npu", "mlu")),
    "no device, strict": Case(only_absent, {"ACCEL_STRICT": "1"}, "cpu"),
    "no device and unbuildable, pinned": Case(unbuildable, {"DS_ACCELERATOR": "npu"}, None),
    "nothing allowed": Case(working, {"ACCEL_ALLOW": "nothing"}, None),
    "unknown pin": Case(working, {"DS_ACCELERATOR": "gone"}, None),
    "unknown pins": Case(working, {"DS_ACCELERATOR": "gone,cpu"}, "cpu"),
    "rivals": Case(rivals, {}, "mlu", ("npu", "mlu")),
    "rivals, pinned": Case(rivals, {"DS_ACCELERATOR": "npu"}, None, ("npu",)),
    "rivals, one pinned": Case(rivals, {"DS_ACCELERATOR": "npu@second-npu"}, "npu", ("npu", "mlu")),
    "rivals, one blocked": Case(rivals, {"ACCEL_BLOCK": "npu@first-npu"}, "npu", ("npu", "mlu")),
}


#: Of these the pages for people are read as well.
TEXTS = ("broken, strict", "generic pinned", "two work", "rivals, pinned")


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_command_says_what_the_choice_does(accel, case):
    case.world(accel)
    code = _ASK.format(names=case.names, texts=case in [CASES[name] for name in TEXTS])
    variables = {"COLUMNS": "", "NO_COLOR": "", **case.settings}
    seen = accel.world.child(code, variables=variables, traced=False).answer
    chosen, source = seen["chosen"], seen["distribution"]
    assert chosen == case.chosen, seen["problem"]

    why, listed = seen["why"], seen["list"]
    assert (why["chosen"], why["distribution"], why["problem"]) == (chosen, source, seen["problem"])
    assert listed["chosen"] == chosen
    if chosen:
        assert why["how"] == listed["how"] == seen["how"]
        marked = [b for b in listed["backends"] if b["marked"]]
        assert [(b["name"], b["distribution"]) for b in marked] == [(chosen, source)]

    each = [one for name in case.names for one in seen["cases"][name]]
    assert each
    for one in each:
        is_chosen = (one["name"], one["distribution"]) == (chosen, source)
        assert one["chosen"] is is_chosen
        assert one["usable"] or not is_chosen
        # What a verdict says in one place it says in all: `why` names those that the choice looked at.
        verdicts = [v for v in why["verdicts"] if v["status"] != "not_probed"]
        for verdict in verdicts:
            if (verdict["name"], verdict["distribution"]) == (one["name"], one["distribution"]):
                assert verdict["status"] == one["status"]
    if "texts" in seen:
        check_texts(seen, case)


def check_texts(seen: dict[str, Any], case: Case) -> None:
    texts, chosen = seen["texts"], seen["chosen"]
    starred = [line[2:].split()[0] for line in texts["list"].splitlines()[1:] if line.startswith("* ")]
    if chosen:
        assert chosen in starred
        assert texts["why"].startswith(f"{chosen} (")
        assert "It would be chosen" in texts[chosen]
    else:
        problem = " ".join(seen["problem"].partition("\n")[0].split())
        assert texts["why"].startswith(f"Nothing can be chosen. {problem}")
        for name in case.names:
            assert "It would be chosen" not in texts[name]
            assert "Nothing would be chosen" in texts[name]
        assert not re.search(r"(?m)^\* \S+ would be chosen", texts["list"])
    assert seen["status of why"] == (0 if chosen else 1)
