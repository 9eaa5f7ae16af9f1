"""Plugins on disk become candidates, in a total order, and a pin imports as few of them as can be."""

import itertools
import os
import random
import shutil
import sys
from pathlib import Path

import pytest
from accel_tests import layouts, plugins
from accel_tests.asking import look, names, only, verdict_on
from accel_tests.layouts import GROUP
from accel_tests.plugins import arguments, declaring
from accel_tests.scanning import ONE, Finder, oracle, ours, site

from accel_core import Backend, InTorch, Provenance, builtin, discover, packages
from accel_core.packages import entry_points as find_entry_points
from accel_core.plugins import rank
from accel_core.settings import parse_pin, permitted_entry_points
from accel_core.verdict import Status

# ---------------------------------------------------------------------------- discovery
# Plugins on disk become candidates, and a pin imports as few of them as can be.


def test_without_plugins_there_are_the_two_built_in_backends(world):
    assert names(discover()) == ["generic", "cpu"]
    assert all(c.builtin and c.distribution == "accel-core" for c in discover())


@pytest.mark.parametrize(
    "layout",
    [layouts.dist_info, layouts.egg_info, layouts.editable],
    ids=lambda layout: layout.__name__,
)
def test_a_plugin_becomes_a_candidate_with_its_provenance(world, layout):
    world.plugin("npu", declaring(arguments("npu")), version="1.2", layout=layout)
    world.set_path([world.site, world.root / "accel-npu-checkout" / "src"])
    found = only("npu")
    assert found.provenance == Provenance("accel-npu", "1.2", "npu", "accel_npu")
    assert found.backend.provenance == found.provenance
    assert not found.builtin
    assert str(found) == "npu (accel-npu 1.2): not probed"


def test_one_plugin_may_declare_several_backends_and_one_alone(world):
    world.plugin(
        "xpu",
        declaring(
            arguments("xpu", 800), arguments("xpu", 790), arguments("xpu.external", 900)
        ),
    )
    one = f"{plugins.HEAD}\n@hookimpl\ndef accel_backends():\n    return Backend({arguments('npu', 1)})\n"
    world.plugin("npu", one)
    ranked = [f"{c.name} {c.priority}" for c in discover()]
    assert ranked[:4] == ["xpu.external 900", "xpu 800", "xpu 790", "generic 100"]
    assert only("npu").priority == 1


def test_one_declaration_given_twice_is_one_candidate(world):
    world.plugin("npu", declaring(arguments("npu"), arguments("npu")))
    assert names(discover()).count("npu") == 1


def test_an_entry_point_may_name_an_object_in_a_module(world):
    source = declaring(arguments("npu")).replace(
        "@hookimpl\ndef accel_backends():",
        "class Hooks:\n  @staticmethod\n  @hookimpl\n  def accel_backends():",
    )
    world.plugin("npu", source, value="accel_npu:Hooks")
    assert only("npu").backend is not None


# ---------------------------------------------------------------------------- find: as few imports as can be


def imported(*modules):
    return [m for m in modules if m in sys.modules]


def test_a_pin_imports_the_one_plugin_of_that_name(world):
    """On a CPU node another vendor's plugin prints driver errors, or takes minutes: it is not imported."""
    world.backend("npu")
    world.backend("mlu")
    assert names(look(parse_pin("npu"))) == ["npu"]
    assert imported("accel_npu", "accel_mlu") == ["accel_npu"]


def test_a_pin_to_a_built_in_imports_no_plugin(world):
    world.backend("npu")
    world.backend("cpu", distribution="fast-cpu")
    assert [c.distribution for c in look(parse_pin("cpu"))] == ["accel-core"]
    assert imported("accel_npu", "fast_cpu") == []
    assert [c.distribution for c in look(parse_pin("cpu@fast-cpu"))] == ["fast-cpu"]


def test_a_broken_plugin_that_is_pinned_comes_back_alone(world):
    world.plugin("npu", "raise ImportError('broken')")
    world.backend("mlu")
    (found,) = look(parse_pin("npu"))
    assert found.status is Status.BROKEN
    assert imported("accel_mlu") == []


def test_a_backend_under_another_entry_point_is_still_found(world):
    world.plugin(
        "intel",
        declaring(
            arguments("xpu", 800), arguments("xpu", 790), arguments("xpu.external", 900)
        ),
    )
    assert names(look(parse_pin("xpu.external"))) == ["xpu.external"]
    assert [c.priority for c in look(parse_pin("xpu"))] == [800, 790]


def test_two_claims_to_a_pinned_name_come_back_without_an_import(world):
    world.backend("npu", distribution="accel-npu")
    world.backend("npu", distribution="better-npu")
    found = look(parse_pin("npu"))
    assert sorted(c.distribution for c in found) == ["accel-npu", "better-npu"]
    assert imported("accel_npu", "better_npu") == []
    assert [c.distribution for c in look(parse_pin("npu@Better.NPU"))] == ["better-npu"]
    assert imported("accel_npu", "better_npu") == ["better_npu"]


def test_an_entry_point_in_capitals_is_found_by_the_forgiving_pin(world):
    world.plugin("NPU", declaring(arguments("npu")), distribution="accel-npu")
    assert names(look(parse_pin("Npu"))) == ["npu"]


def test_a_name_that_nobody_declares_finds_nothing(world):
    world.backend("npu")
    assert look(parse_pin("tpu")) == ()
    assert look(parse_pin("npu@other")) == ()


# ---------------------------------------------------------------------------- discovery order
# Candidates stand in a total order, which nothing about the machine changes.


def candidate(
    name, priority=100, *, device_type="", impersonates="", distribution="", value="v"
):
    provenance = Provenance(distribution or f"accel-{name}", "1.0", name, value)
    backend = Backend(
        name=name,
        priority=priority,
        device_type=device_type or name.partition(".")[0],
        in_torch=InTorch(impersonates=impersonates),
        provenance=provenance,
    )
    return verdict_on(backend)


def orders(candidates):
    """The ranked names, for many orders in which the candidates may be found."""
    shuffler = random.Random(0)
    if len(candidates) <= 4:
        ways = [list(p) for p in itertools.permutations(candidates)]
    else:
        ways = [shuffler.sample(candidates, len(candidates)) for _ in range(50)]
    return {
        tuple(
            f"{c.name}@{c.distribution}" if c.name == "same" else c.name
            for c in rank(way)
        )
        for way in ways
    }


def test_priority_then_name_then_distribution():
    """Equal priorities must not change from run to run."""
    same = [candidate("same", distribution=d) for d in ("b", "a")]
    assert orders(
        [candidate("zeta", 300), candidate("beta"), candidate("alpha"), *same]
    ) == {("zeta", "alpha", "beta", "same@a", "same@b")}


def test_the_builtin_cpu_is_below_every_plugin_of_its_priority():
    """The CPU, which is always usable, is the fallback and never makes a conflict."""
    cpu = builtin.builtin_verdicts()[0]
    assert cpu.name == "cpu"
    assert orders([cpu, candidate("zzz", 0), candidate("aaa", 0)]) == {
        ("aaa", "zzz", "cpu")
    }


def test_a_broken_plugin_ranks_above_the_cpu_so_that_it_is_reported(world):
    world.plugin("zzz", "raise ImportError")
    assert names(discover()) == ["generic", "zzz", "cpu"]


#: Each name with its priority and what it impersonates, in the order of their rank.
RANKED = {
    # What it impersonates looks usable when it is not.
    "before what it impersonates": [("npu", 700), ("supa", 50, "cuda"), ("cuda", 200), ("mps", 150)],
    "where its own number puts it": [("supa", 900, "cuda"), ("npu", 700), ("cuda", 200)],
    "before every backend of that device type": [("spoof", 1, "xpu"), ("xpu.external", 900), ("xpu", 800)],
    "by their numbers among themselves": [("zz", 20, "cuda"), ("aa", 10, "cuda"), ("cuda", 200)],
    "nothing impersonated is there": [("npu", 700), ("supa", 50, "cuda")],
}  # fmt: skip


@pytest.mark.parametrize("ranked", RANKED.values(), ids=RANKED.keys())
def test_impersonators_stand(ranked):
    found = [
        candidate(name, number, impersonates="".join(taken))
        for name, number, *taken in ranked
    ]
    assert orders(found) == {tuple(name for name, *_ in ranked)}


#: Names with priorities, and what each impersonates: no order satisfies all of them.
CIRCLES = {
    "two impersonate each other": [("a", 10, "b"), ("b", 20, "a")],
    "a pair, and one that impersonates itself": [
        ("a", 10, "b"),
        ("b", 20, "a"),
        ("self", 15, "self"),
    ],
    "three in a circle, and one from outside": [
        ("a", 1, "b"),
        ("b", 2, "c"),
        ("c", 3, "a"),
        ("d", 4, "a"),
    ],
}


@pytest.mark.parametrize("circle", CIRCLES.values(), ids=CIRCLES.keys())
def test_a_circle_of_impersonators_has_one_order_whichever_is_found_first(circle):
    found = [
        candidate(name, priority, impersonates=of) for name, priority, of in circle
    ]
    assert len(orders(found)) == 1


@pytest.mark.parametrize("seed", ["0", "1", "42"])
@pytest.mark.parametrize("backwards", [False, True])
def test_the_order_depends_on_neither_hash_seed_nor_install_order(
    world, seed, backwards
):
    """Else a machine would choose another backend from run to run."""
    some = [
        ("npu", {}),
        ("mlu", {}),
        ("supa", {"priority": 1, "in_torch": InTorch(impersonates="mlu")}),
        ("sdaa", {}),
    ]
    for name, fields in reversed(some) if backwards else some:
        world.backend(name, **{"priority": 500, **fields})
    world.backend("npu", distribution="zz-npu")
    code = """
import json
from accel_core import discover
print(json.dumps([(each.name, each.distribution) for each in discover()]))
"""
    if backwards:  # and the directory's own order reversed
        code = (
            "import os\nreal = os.listdir\nos.listdir = lambda p='.': sorted(real(p), reverse=True)\n"
            + code
        )
    found = world.child(code, variables={"PYTHONHASHSEED": seed}).answer
    assert found == [
        ["supa", "accel-supa"],
        ["mlu", "accel-mlu"],
        ["npu", "accel-npu"],
        ["npu", "zz-npu"],
        ["sdaa", "accel-sdaa"],
        ["generic", "accel-core"],
        ["cpu", "accel-core"],
    ]


# ---------------------------------------------------------------------------- entry points
# Entry points are what `importlib.metadata` finds, and one broken neighbour hides nobody.


NPU = ("npu", "accel_npu", "accel-npu", "1.0")


def test_the_first_distribution_on_the_path_counts(only, tmp_path):
    first, second = site(tmp_path, "first"), site(tmp_path, "second")
    layouts.dist_info(first, "accel-npu", "1.0", {GROUP: {"npu": "old"}})
    layouts.dist_info(second, "Accel.NPU", "2.0", {GROUP: {"npu": "new"}})
    only([first, second])
    assert ours() == oracle() == [("npu", "old", "accel-npu", "1.0")]
    only([second, first])
    assert ours() == oracle() == [("npu", "new", "Accel.NPU", "2.0")]


def test_groups_are_kept_apart(only, tmp_path):
    layouts.dist_info(
        site(tmp_path), "both", "1.0", {GROUP: {"a": "m"}, "torch.backends": {"b": "n"}}
    )
    only([tmp_path / "site"])
    assert [e.name for e in find_entry_points(GROUP)] == ["a"]
    assert [e.name for e in find_entry_points("torch.backends")] == ["b"]


#: What becomes of the file. On the second the standard library's reader fails, in some releases.
DAMAGE = {
    "not UTF-8": lambda file: file.write_bytes(b"[accel.backends]\nx = \xff\n"),
    "a line without a module": lambda file: file.write_text("[accel.backends]\njunk\n"),
    "a link to itself": lambda file: file.symlink_to(file.name),
    "a folder": Path.mkdir,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_neighbour_whose_metadata_is_broken_hides_nobody(
    only, tmp_path, caplog, damage
):
    """One broken distribution must not disable all the others."""
    root = site(tmp_path)
    for name in ("aaa", "zzz"):
        layouts.dist_info(root, name, "1.0", {"console_scripts": {"x": "y"}})
        file = root / f"{name}-1.0.dist-info/entry_points.txt"
        file.unlink()
        DAMAGE[damage](file)
    layouts.dist_info(root, "accel-npu", "1.0", ONE)
    only([root])
    assert NPU in ours()
    if damage == "not UTF-8":
        assert "aaa 1.0 is passed over, as its metadata cannot be read" in caplog.text


def test_paths_that_hold_nothing_are_passed_over(only, tmp_path):
    root = site(tmp_path)
    layouts.dist_info(root, "accel-npu", "1.0", ONE)
    (tmp_path / "text.zip").write_text("no archive")
    only([tmp_path / "missing", tmp_path / "text.zip", root])
    assert ours() == oracle() == [NPU]


@pytest.mark.parametrize("metadata_bytes", [None, b"", b"Name: \xff\n"])
def test_a_distribution_without_a_name_is_passed_over_alone(
    only, tmp_path, metadata_bytes
):
    root = site(tmp_path)
    layouts.dist_info(root, "accel-mlu", "3.0", {GROUP: {"mlu": "accel_mlu"}})
    layouts.dist_info(root, "accel-npu", "1.0", ONE)
    file = root / "accel_mlu-3.0.dist-info" / "METADATA"
    file.unlink() if metadata_bytes is None else file.write_bytes(metadata_bytes)
    only([root])
    assert ours() == [NPU]


def test_a_newer_release_without_the_entry_point_hides_the_older_one(only, tmp_path):
    first, second = site(tmp_path, "first"), site(tmp_path, "second")
    layouts.dist_info(first, "accel-npu", "2.0", {"console_scripts": {"x": "y"}})
    layouts.dist_info(second, "Accel.NPU", "1.0", ONE)
    only([first, second])
    assert ours() == oracle() == []


def test_a_finder_that_fails_hides_nobody(only, tmp_path, monkeypatch):
    class Failing(Finder):
        def find_distributions(self, context=None):
            raise RuntimeError("no distributions today")

    layouts.dist_info(site(tmp_path), "accel-npu", "1.0", ONE)
    only([tmp_path / "site"])
    monkeypatch.setattr(sys, "meta_path", [Failing(tmp_path), *sys.meta_path])
    assert ours() == [NPU]


# ---------------------------------------------------------------------------- what the policy leaves


@pytest.mark.parametrize(
    ("variables", "left"),
    [
        ({}, ["ours", "theirs", "evil"]),
        ({"ACCEL_BLOCK": "@evil"}, ["ours", "theirs"]),
        (
            {"ACCEL_BLOCK": "bad"},
            ["ours", "theirs", "evil"],
        ),  # a backend of it, and nothing else
        ({"ACCEL_BLOCK": "@accel-tools,@evil,@acme-tools"}, []),
        ({"ACCEL_ALLOW": "cpu"}, ["ours"]),
        ({"ACCEL_ALLOW": "cpu,bad"}, ["ours", "evil"]),
        ({"ACCEL_ALLOW": "bad@acme-tools,@Acme.Tools"}, ["ours", "theirs"]),
        ({"ACCEL_ALLOW": "bad", "ACCEL_BLOCK": "@evil"}, ["ours"]),
    ],
)
def test_code_of_every_group_is_asked_of_the_policy_and_ours_comes_first(
    only, tmp_path, variables, left
):
    root = site(tmp_path)
    every = (
        ("acme-tools", "theirs", {}),
        ("evil", "evil", {GROUP: {"bad": "evil"}}),
        ("accel-tools", "ours", {}),
    )
    for name, module, more in every:
        layouts.dist_info(
            root, name, "1.0", {"accel.commands": {"doctor": module}, **more}
        )
    only([root])
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in variables.items():
            patch.setenv(variable, value)
        assert [e.value for e in permitted_entry_points("accel.commands")] == left


# ---------------------------------------------------------------------------- what changes


def _age(path, seconds):
    """Coarse clocks must not decide a test."""
    stamp = path.stat().st_mtime_ns + seconds * 10**9
    os.utime(path, ns=(stamp, stamp))


def test_an_installation_and_a_removal_are_noticed(only, tmp_path):
    root = site(tmp_path)
    only([root])
    assert ours() == []
    layouts.dist_info(root, "accel-npu", "1.0", ONE)
    _age(root, 10)
    assert ours() == oracle() == [NPU]
    shutil.rmtree(root / "accel_npu-1.0.dist-info")
    _age(root, 20)
    assert ours() == oracle() == []


def test_a_new_path_entry_and_a_new_finder_are_noticed(only, tmp_path, monkeypatch):
    first, second = site(tmp_path, "first"), site(tmp_path, "second")
    layouts.dist_info(first, "accel-npu", "1.0", ONE)
    layouts.dist_info(second, "accel-mlu", "3.0", {GROUP: {"mlu": "accel_mlu"}})
    only([first])
    assert [e.name for e in find_entry_points(GROUP)] == ["npu"]
    monkeypatch.setattr(
        sys, "meta_path", [*sys.meta_path, Finder(second / "accel_mlu-3.0.dist-info")]
    )
    assert [e.name for e in find_entry_points(GROUP)] == ["npu", "mlu"]


# ---------------------------------------------------------------------------- loading what was found


def test_an_entry_point_names_a_module_or_an_object_in_it():
    def point(value):
        return packages.Provenance("dist", "1", "x", value)

    assert point("os.path").load() is os.path
    assert point("os:path.join [extra]").load() is os.path.join
    assert point(" os.path :join").module == "os.path"
    assert point("").module == "" == point(":x").module


def test_the_version_of_a_distribution_that_is_missing_or_broken_is_none(world):
    layouts.dist_info(world.site, "good", "1.5")
    layouts.dist_info(world.site, "broken", "1.0")
    (world.site / "broken-1.0.dist-info" / "METADATA").write_bytes(
        b"Name: broken\nVersion: \xff\n"
    )
    world.set_path([world.site])
    assert packages.version("good") == "1.5"
    assert packages.version("absent-distribution") is None
    assert packages.version("") is None
    assert packages.version("broken") is None or isinstance(
        packages.version("broken"), str
    )
