"""One decision: the commands say of every choice what `get_accelerator()` then does, by its own words."""

import json

import pytest

import accel_core

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


@pytest.mark.filterwarnings("ignore::accel_core.AcceleratorFallbackWarning")
@pytest.mark.parametrize(("beside", "pin", "settings", "name"), CASES)
def test_every_command_says_what_the_choice_does(
    torch_world, accel, monkeypatch, beside, pin, settings, name
):
    if beside == "broken":
        accel.world.plugin("npu", "raise ImportError('libfoo.so')")
    for installed, how in WORLDS.get(beside, ()):
        accel.install(installed, **how)
    settings = settings | ({"DS_ACCELERATOR": pin} if pin else {})
    text, listing = accel("why", **settings), accel("list", **settings).stdout
    why, listed = (
        json.loads(accel(command, "--json", **settings).stdout)
        for command in ("why", "list")
    )
    names = {backend["name"] for backend in listed["backends"]}
    pages = {each: accel("why", each, **settings).stdout for each in names}
    documents = [
        json.loads(accel("why", each, "--json", **settings).stdout) for each in names
    ]

    for variable, value in settings.items():
        monkeypatch.setenv(variable, value)
    try:
        found = accel_core.get_accelerator()
        chosen, how, problem = (
            (found.name, found.backend.distribution),
            accel_core.selection().how.value,
            "",
        )
    except accel_core.AccelError as error:
        chosen, how, problem = (None, None), None, str(error)
    assert chosen[0] == name, problem
    assert listed["chosen"] == name, problem
    assert (why["chosen"], why["distribution"]) == chosen
    assert why["problem"] == problem
    assert (text.returncode == 0) is bool(name)
    if name:
        assert why["how"] == how
        assert listed["how"] == how
        assert [
            key(backend) for backend in listed["backends"] if backend["marked"]
        ] == [chosen]
        assert text.stdout.startswith(f"{name} (")
        assert "It would be chosen" in pages[name]
        assert f"\n* {name} " in listing
    else:
        assert text.stdout.startswith(
            f"Nothing can be chosen. {' '.join(problem.partition(chr(10))[0].split())}"
        )
        assert all("Nothing would be chosen" in page for page in pages.values())
    # What a verdict says in one place it says in all: `why` names those that the choice looked at.
    statuses = {
        key(v): v["status"] for v in why["verdicts"] if v["status"] != "not_probed"
    }
    for one in [one for document in documents for one in document["backends"]]:
        assert one["chosen"] is (key(one) == chosen)
        assert one["usable"] or not one["chosen"]
        assert statuses.get(key(one), one["status"]) == one["status"]
