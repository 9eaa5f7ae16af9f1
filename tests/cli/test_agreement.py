"""One decision: the commands say of every choice what `get_accelerator()` then does, by its own words."""

import json
from types import SimpleNamespace
from typing import NamedTuple

import pytest

import accel_core

pytestmark = pytest.mark.filterwarnings("ignore::accel_core.AcceleratorFallbackWarning")

ABSENT = "ProbeResult(False, 'nothing on the bus', devices=0)"
#: What is installed: arguments of `accel.install` by name.
WORLDS = {
    "nothing": (),
    "working": (("npu", {}), ("mlu", {"priority": 300})),
    "absent": (("npu", {"answer": ABSENT}), ("mlu", {"priority": 300})),
    "only absent": (("npu", {"answer": ABSENT}),),
    # Its probe says that a device is missing, which a pin forgives, but it cannot be built either.
    "unbuildable": (("npu", {"answer": ABSENT, "accelerator": "json:missing"}),),
    "rivals": (
        *(("npu", {"distribution": f"{n}-npu"}) for n in ("first", "second")), ("mlu", {"priority": 300}),
    ),
}  # fmt: skip
#: What is installed, `DS_ACCELERATOR`, the other settings, and what is chosen.
CASES = [
    ("nothing", "", {}, "cpu"),
    ("nothing", "", {"ACCEL_STRICT": "1"}, "cpu"),
    ("broken", "", {}, "cpu"),
    ("broken", "", {"ACCEL_STRICT": "1"}, None),
    ("broken", "cpu", {"ACCEL_STRICT": "1"}, "cpu"),
    ("broken", "npu", {}, None),
    ("nothing", "generic", {}, None),
    ("working", "", {}, "npu"),
    ("working", "", {"ACCEL_BLOCK": "npu"}, "mlu"),
    ("working", "", {"ACCEL_ALLOW": "mlu"}, "mlu"),
    ("working", "mlu", {}, "mlu"),
    ("working", "npu", {"ACCEL_BLOCK": "npu"}, None),
    ("absent", "", {}, "mlu"),
    ("absent", "npu", {}, "npu"),
    ("absent", "npu,mlu", {}, "mlu"),
    ("only absent", "", {"ACCEL_STRICT": "1"}, "cpu"),
    ("unbuildable", "npu", {}, None),
    ("working", "", {"ACCEL_ALLOW": "nothing"}, None),
    ("working", "gone", {}, None),
    ("working", "gone,cpu", {}, "cpu"),
    ("rivals", "", {}, "mlu"),
    ("rivals", "npu", {}, None),
    ("rivals", "npu@second-npu", {}, "npu"),
    ("rivals", "", {"ACCEL_BLOCK": "npu@first-npu"}, "npu"),
]


def key(row):
    return row["name"], row["distribution"]


class Choice(NamedTuple):
    """What `get_accelerator()` gives in this process: a backend and how it was found, or an error."""

    chosen: tuple
    how: str | None = None
    problem: str = ""


def choice_of_this_process(settings, monkeypatch):
    for variable, value in settings.items():
        monkeypatch.setenv(variable, value)
    try:
        found = accel_core.get_accelerator()
    except accel_core.AccelError as error:
        return Choice((None, None), problem=str(error))
    how = accel_core.selection().how.value
    return Choice((found.name, found.backend.distribution), how)


@pytest.fixture
def case(request, torch_world, accel, monkeypatch):
    """The command, the settings of a case, and what they make this process choose."""
    installed, pin, settings, name = request.param
    if installed == "broken":
        accel.world.plugin("npu", "raise ImportError('libfoo.so')")
    for backend, how in WORLDS.get(installed, ()):
        accel.install(backend, **how)
    settings = settings | ({"DS_ACCELERATOR": pin} if pin else {})
    with monkeypatch.context() as patch:
        choice = choice_of_this_process(settings, patch)
    assert choice.chosen[0] == name, choice.problem
    return SimpleNamespace(accel=accel, settings=settings, choice=choice)


every_case = pytest.mark.parametrize("case", CASES, indirect=True, ids=str)


@every_case
def test_why_says_what_is_chosen_and_how(case):
    answer = case.accel("why", "--json", **case.settings)
    why = json.loads(answer.stdout)
    assert (why["chosen"], why["distribution"]) == case.choice.chosen
    assert why["problem"] == case.choice.problem
    if why["chosen"]:
        assert why["how"] == case.choice.how


@every_case
def test_why_begins_with_what_is_chosen_or_with_the_error(case):
    text = case.accel("why", **case.settings)
    name, _ = case.choice.chosen
    if name:
        assert text.returncode == 0
        assert text.stdout.startswith(f"{name} (")
    else:
        assert text.returncode != 0
        sentence = " ".join(case.choice.problem.splitlines()[0].split())
        assert text.stdout.startswith(f"No backend can be chosen. {sentence}")


@every_case
def test_list_marks_what_is_chosen(case):
    listing = case.accel("list", **case.settings).stdout
    listed = json.loads(case.accel("list", "--json", **case.settings).stdout)
    name, _ = case.choice.chosen
    assert listed["chosen"] == name
    if name:
        marked = [key(backend) for backend in listed["backends"] if backend["marked"]]
        assert listed["how"] == case.choice.how
        assert marked == [case.choice.chosen]
        assert f"\n* {name} " in listing


@every_case
def test_why_each_backend_says_whether_it_is_the_one(case):
    listed = json.loads(case.accel("list", "--json", **case.settings).stdout)
    names = {backend["name"] for backend in listed["backends"]}
    pages = {name: case.accel("why", name, **case.settings).stdout for name in names}
    name, _ = case.choice.chosen
    if name:
        assert "It would be chosen" in pages[name]
    else:
        assert all("No backend would be chosen" in page for page in pages.values())


@every_case
def test_a_verdict_is_the_same_in_every_document(case):
    """`why` names those that the choice looked at."""
    why = json.loads(case.accel("why", "--json", **case.settings).stdout)
    listed = json.loads(case.accel("list", "--json", **case.settings).stdout)
    looked_at = {
        key(verdict): verdict["status"]
        for verdict in why["verdicts"]
        if verdict["status"] != "not_probed"
    }
    for name in {backend["name"] for backend in listed["backends"]}:
        document = json.loads(case.accel("why", name, "--json", **case.settings).stdout)
        for backend in document["backends"]:
            assert backend["chosen"] is (key(backend) == case.choice.chosen)
            assert backend["usable"] or not backend["chosen"]
            status = looked_at.get(key(backend), backend["status"])
            assert backend["status"] == status
