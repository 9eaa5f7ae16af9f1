"""`accel doors`: which installed frameworks take the accelerator, from metadata."""

from importlib import metadata
from pathlib import Path

import pytest

from accel_train.commands.doors import BackendNames, support_of
from accel_train.doors.catalogue import FRAMEWORKS, Framework

ROOT = Path(__file__).parents[4]
ACME = BackendNames("acme", "accel-acme", "acme")
#: Its own group, which this distribution has no entry point in.
LATER = Framework(
    "Later", "later", "docs/x.md", adapter="accel_train.doors.later", group="later.x"
)
CALLED = Framework(
    "Called",
    "called",
    "docs/x.md",
    adapter="accel_train.loading",
    native_devices=("npu",),
)
IMPORTED_FRAMEWORKS = frozenset(
    {"torch", "transformers", "accelerate", "lightning", "deepspeed", "verl", "trl"}
)


def test_each_framework_has_an_adapter_or_a_line_and_its_page():
    assert len({framework.name for framework in FRAMEWORKS}) == len(FRAMEWORKS)
    for framework in FRAMEWORKS:
        assert (ROOT / framework.url).is_file(), framework
        assert framework.adapter or framework.usage, framework
        if framework.adapter:
            assert framework.adapter.startswith("accel_train."), framework


def test_every_door_that_a_framework_opens_by_itself_is_in_the_catalogue():
    """An entry point of ours in another project's group has its row, and each row's door its entry point."""
    ours = metadata.distribution("accel-train").entry_points
    foreign = {(e.group, e.module) for e in ours if not e.group.startswith("accel.")}
    foreign.discard(
        ("torch.backends", "accel_train_startup")
    )  # the start of activations, and no door
    foreign.discard(
        ("deepspeed.accelerators", "accel_train.doors.deepspeed")
    )  # of a patched one: no release
    known = {
        (framework.group, framework.adapter.partition(":")[0])
        for framework in FRAMEWORKS
        if framework.group and framework.adapter
    }
    assert foreign == known


SUPPORT = {
    "an adapter that is called": (CALLED, ACME, "open", "call accel_train.loading"),
    "with a limit": (
        CALLED._replace(limitation="no fp16"),
        ACME,
        "half",
        "call accel_train.loading; no fp16",
    ),
    "a device of its own": (
        CALLED,
        BackendNames("npu", "accel-npu", "npu"),
        "own",
        "it drives npu by itself",
    ),
    "a device that takes another's name": (
        CALLED,
        BackendNames("supa", "accel-supa", "supa", "npu"),
        "own",
        "it drives npu by itself",
    ),
    "the CPU": (
        CALLED,
        BackendNames("cpu", "accel-core", "cpu"),
        "own",
        "the CPU needs no door",
    ),
    "an adapter that is not there": (
        CALLED._replace(adapter="accel_train.nothing"),
        ACME,
        "shut",
        "has no accel_train.nothing",
    ),
    "an adapter that accel run prepares": (
        CALLED._replace(integration="deepspeed"),
        ACME,
        "open",
        "by itself under accel run; else call",
    ),
    "an entry point that is not there": (
        LATER,
        ACME,
        "shut",
        "has no entry point in later.x",
    ),
    "a line alone": (
        LATER._replace(adapter="", usage="f(device=d)", limitation="else the CPU"),
        ACME,
        "half",
        "f(device=d); else the CPU",
    ),
}


@pytest.mark.parametrize("name", SUPPORT)
def test_how_a_framework_takes_a_device(name):
    door, asked, state, words = SUPPORT[name]
    support = support_of(door, asked)
    assert support.state == state
    assert words in support.explanation


def test_a_declared_entry_point_opens_the_door():
    (entry_point,) = metadata.entry_points(group="accel.process_groups", name="staged")
    door = LATER._replace(group="accel.process_groups", adapter=entry_point.module)
    assert support_of(door, ACME) == (
        "open",
        "by itself, as 'staged' in accel.process_groups",
    )


@pytest.fixture
def frameworks(accel):
    """Metadata of frameworks, of which no module is there; and a card that none of them knows."""
    for name, version in {
        "accelerate": "1.15.0",
        "transformers": "6.0.0",
        "fastai": "2.8.12",
    }.items():
        accel.world.distribution(name, version)
    accel.world.backend("card", 990)
    return accel


def test_the_installed_frameworks_are_listed_and_none_is_imported(frameworks):
    done = frameworks(
        "doors", "card", torch=False, watched=IMPORTED_FRAMEWORKS
    ).succeeded()
    assert done.stderr.endswith("loaded: []")
    rows = {
        line.split("  ")[0]: " ".join(line.split()) for line in done.stdout.splitlines()
    }
    assert (
        "1.15.0 half by itself under accel run; else call accel_train.accelerate;"
        in rows["Accelerate"]
    )
    assert "6.0.0 half by itself under accel run" in rows["Transformers"]
    assert (
        "2.8.12 half DataLoaders(..., device=accel_core.get_accelerator().device());"
        in rows["fastai"]
    )
    assert "DeepSpeed" not in rows
    assert "For card (accel-card). Another backend: accel doors NAME." in done.stdout
    assert (
        f"{len(FRAMEWORKS) - 3} frameworks not installed: accel doors --all"
        in done.stdout
    )
    every = frameworks("doors", "card", "--all", torch=False, COLUMNS="80").stdout
    assert all(framework.name in every for framework in FRAMEWORKS)
    assert max(map(len, every.splitlines())) <= 80


def test_the_chosen_accelerator_is_asked_what_it_is(accel):
    accel.install_card()
    accel.world.distribution("accelerate", "1.15.0")
    document = accel.json("doors")
    assert [document[k] for k in ("name", "distribution", "device_type")] == [
        "card",
        "accel-card",
        "card",
    ]
    (row,) = [each for each in document["doors"] if each["framework"] == "Accelerate"]
    assert (row["installed"], row["state"]) == ("1.15.0", "half")


def test_a_backend_that_is_missing_or_broken_is_an_error(accel):
    message = accel.json("doors", "nowhere", status=2)["error"]["message"]
    assert "accel doors nowhere: no installed distribution declares nowhere" in message
    accel.world.plugin("bad", "raise OSError('libbad.so')")
    message = accel.json("doors", "bad", status=1)["error"]["message"]
    assert "libbad.so" in message
    assert message.endswith("See: accel why bad")


def test_the_type_of_what_no_plugin_declares_is_no_placeholder(accel):
    accel.world.distribution(
        "torch-foo", "1.0", {"torch.backends": {"foo": "torch_foo:autoload"}}
    )
    named = accel.json("doors", "foo")
    assert (named["name"], named["device_type"]) == ("generic", "foo")
    assert (
        "For generic (torch-foo), torch's device type foo. Another"
        in accel("doors", "foo").stdout
    )
    assert accel.json("doors", "generic")["device_type"] == ""
    assert (
        "For generic (torch-foo). Another backend" in accel("doors", "generic").stdout
    )
