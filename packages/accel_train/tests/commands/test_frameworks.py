"""`accel frameworks`: which installed frameworks take the accelerator, from metadata."""

from importlib import metadata
from pathlib import Path

import pytest

from accel_train.commands.frameworks import BackendNames, support_of
from accel_train.integrations.catalogue import FRAMEWORKS, Framework

ROOT = Path(__file__).parents[4]
ACME = BackendNames("acme", "accel-acme", "acme")
#: Its own group, which this distribution has no entry point in.
LATER = Framework(
    "Later",
    "later",
    "docs/x.md",
    adapter="accel_train.integrations.later",
    group="later.x",
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


def test_every_framework_that_loads_an_adapter_by_entry_point_is_in_the_catalogue():
    """The entry points of accel-train in the groups of other projects are those of the catalogue."""
    ours = metadata.distribution("accel-train").entry_points
    foreign = {(e.group, e.module) for e in ours if not e.group.startswith("accel.")}
    foreign.discard(
        ("torch.backends", "accel_train_startup")
    )  # starts activations; not a framework
    foreign.discard(
        ("deepspeed.accelerators", "accel_train.integrations.deepspeed")
    )  # of a patched one: no release
    known = {
        (framework.group, framework.adapter.partition(":")[0])
        for framework in FRAMEWORKS
        if framework.group and framework.adapter
    }
    assert foreign == known


SUPPORT = {
    "an adapter that is called": (
        CALLED,
        ACME,
        "supported",
        "use accel_train.loading",
    ),
    "with a limit": (
        CALLED._replace(limitation="no fp16"),
        ACME,
        "partial",
        "use accel_train.loading; no fp16",
    ),
    "a device of its own": (
        CALLED,
        BackendNames("npu", "accel-npu", "npu"),
        "native",
        "supports npu without accel",
    ),
    "a device that takes another's name": (
        CALLED,
        BackendNames("supa", "accel-supa", "supa", "npu"),
        "native",
        "supports npu without accel",
    ),
    "the CPU": (
        CALLED,
        BackendNames("cpu", "accel-core", "cpu"),
        "native",
        "every framework supports the CPU",
    ),
    "an adapter that is not there": (
        CALLED._replace(adapter="accel_train.nothing"),
        ACME,
        "unsupported",
        "has no module accel_train.nothing",
    ),
    "an adapter that accel run prepares": (
        CALLED._replace(integration="deepspeed"),
        ACME,
        "supported",
        "automatic under accel run; otherwise use",
    ),
    "an entry point that is not there": (
        LATER,
        ACME,
        "unsupported",
        "has no entry point in the group later.x",
    ),
    "a line alone": (
        LATER._replace(adapter="", usage="f(device=d)", limitation="else the CPU"),
        ACME,
        "partial",
        "f(device=d); else the CPU",
    ),
}


@pytest.mark.parametrize("name", SUPPORT)
def test_how_a_framework_supports_a_device(name):
    framework, backend, level, words = SUPPORT[name]
    support = support_of(framework, backend)
    assert support.level == level
    assert words in support.explanation


def test_a_framework_with_a_declared_entry_point_is_supported():
    (entry_point,) = metadata.entry_points(group="accel.process_groups", name="staged")
    framework = LATER._replace(group="accel.process_groups", adapter=entry_point.module)
    assert support_of(framework, ACME) == (
        "supported",
        "automatic, by the entry point 'staged' in the group accel.process_groups",
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
        "frameworks", "card", torch=False, watched=IMPORTED_FRAMEWORKS
    ).succeeded()
    assert done.stderr.endswith("loaded: []")
    rows = {
        line.split("  ")[0]: " ".join(line.split()) for line in done.stdout.splitlines()
    }
    assert (
        "1.15.0 partial automatic under accel run; otherwise use accel_train.accelerate;"
        in rows["Accelerate"]
    )
    assert "6.0.0 partial automatic under accel run" in rows["Transformers"]
    assert (
        "2.8.12 partial DataLoaders(..., device=accel_core.get_accelerator().device());"
        in rows["fastai"]
    )
    assert "DeepSpeed" not in rows
    assert (
        "Backend: card (accel-card). For another backend, run accel frameworks NAME."
        in done.stdout
    )
    assert (
        f"Not installed: {len(FRAMEWORKS) - 3} frameworks. To list all frameworks, run "
        "accel frameworks --all." in done.stdout
    )
    every = frameworks("frameworks", "card", "--all", torch=False, COLUMNS="80").stdout
    assert all(framework.name in every for framework in FRAMEWORKS)
    assert max(map(len, every.splitlines())) <= 80


def test_the_chosen_accelerator_is_asked_what_it_is(accel):
    accel.install_card()
    accel.world.distribution("accelerate", "1.15.0")
    document = accel.json("frameworks")
    assert [document[k] for k in ("name", "distribution", "device_type")] == [
        "card",
        "accel-card",
        "card",
    ]
    (row,) = [
        each for each in document["frameworks"] if each["framework"] == "Accelerate"
    ]
    assert row["installed"] == "1.15.0"
    assert row["support"] == "partial"


def test_a_backend_that_is_missing_or_broken_is_an_error(accel):
    message = accel.json("frameworks", "nowhere", status=2)["error"]["message"]
    assert (
        "accel frameworks nowhere: no installed distribution declares nowhere"
        in message
    )
    accel.world.plugin("bad", "raise OSError('libbad.so')")
    message = accel.json("frameworks", "bad", status=1)["error"]["message"]
    assert "libbad.so" in message
    assert message.endswith("See: accel why bad")


def test_the_type_of_what_no_plugin_declares_is_no_placeholder(accel):
    accel.world.distribution(
        "torch-foo", "1.0", {"torch.backends": {"foo": "torch_foo:autoload"}}
    )
    named = accel.json("frameworks", "foo")
    assert named["name"] == "generic"
    assert named["device_type"] == "foo"
    assert (
        "Backend: generic (torch-foo), whose device type in torch is foo. For another"
        in accel("frameworks", "foo").stdout
    )
    assert accel.json("frameworks", "generic")["device_type"] == ""
    assert (
        "Backend: generic (torch-foo). For another backend"
        in accel("frameworks", "generic").stdout
    )
