"""Plugins on disk become candidates; whatever is wrong with one is a fault of that one alone."""

from __future__ import annotations

import itertools
import random
import sys

import pytest
from accel_testing import layouts, plugins
from accel_testing.plugins import arguments, declaring

from accel_core import discovery
from accel_core.backend import API_LEVEL, Backend, Provenance
from accel_core.discovery import Candidate, discover, find, rank, root_cause
from accel_core.errors import InvalidBackendError
from accel_core.settings import parse_pin


def names(candidates) -> list[str]:
    return [c.name for c in candidates]


def only(name: str) -> Candidate:
    (found,) = [c for c in discover() if c.name == name]
    return found


def test_without_plugins_there_are_the_two_built_in_backends(world):
    assert names(discover()) == ["generic", "cpu"]
    assert all(c.builtin and c.distribution == "accel-core" for c in discover())


@pytest.mark.parametrize(
    "layout", [layouts.dist_info, layouts.egg_info, layouts.editable], ids=lambda layout: layout.__name__
)
def test_a_plugin_becomes_a_candidate_with_its_provenance(world, layout):
    world.plugin("npu", declaring(arguments("npu")), version="1.2", layout=layout)
    world.set_path([world.site, world.root / "accel-npu-checkout" / "src"])
    found = only("npu")
    assert found.provenance == Provenance("accel-npu", "1.2", "npu", "accel_npu")
    assert found.backend is not None
    assert found.backend.provenance == found.provenance
    assert not found.builtin
    assert str(found) == "npu (accel-npu 1.2)"


@pytest.mark.parametrize(
    "layout", [layouts.egg_zip, layouts.wheel_zip, layouts.egg_folder], ids=lambda x: x.__name__
)
@pytest.mark.usefixtures("archives")
def test_a_plugin_in_an_archive_works(world, layout):
    entry = layout(
        world.root / "archives",
        "accel-npu",
        "1.2",
        {layouts.GROUP: {"npu": "accel_npu"}},
        {"accel_npu": declaring(arguments("npu"))},
    )
    world.set_path([entry])
    assert only("npu").backend is not None


def test_one_plugin_may_declare_several_backends_and_one_alone(world):
    world.plugin(
        "xpu", declaring(arguments("xpu", 800), arguments("xpu", 790), arguments("xpu.external", 900))
    )
    one = f"{plugins.HEAD}\n@hookimpl\ndef accel_backends():\n    return Backend({arguments('npu', 1)})\n"
    world.plugin("npu", one)
    assert [(c.name, c.priority) for c in discover()][:4] == [
        ("xpu.external", 900),
        ("xpu", 800),
        ("xpu", 790),
        ("generic", 100),
    ]
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


# ---------------------------------------------------------------------------- faults

RAISING = {
    "ImportError": (
        "raise ImportError('libfoo.so: cannot open shared object file')",
        "ImportError: libfoo.so",
    ),
    "OSError": ("raise OSError('libhccl.so: no such file')", "OSError: libhccl.so"),
    "AttributeError": (
        "import json; json._autoload",
        "AttributeError: module 'json' has no attribute '_autoload'",
    ),
    "RuntimeError": ("raise RuntimeError('no driver')", "RuntimeError: no driver"),
    "SyntaxError": ("def (:", "SyntaxError"),
    "sys.exit": ("import sys; sys.exit(3)", "SystemExit: it tried to end the process with 3"),
    "sys.exit text": ("import sys; sys.exit('bye')", "SystemExit: it tried to end the process with 'bye'"),
    "ValueError": ("int('x')", "ValueError: invalid literal"),
    "no text": ("raise RuntimeError", "RuntimeError"),
    "no message": (
        "class Mute(Exception):\n    def __str__(self): raise TypeError\nraise Mute",
        "Mute: (its message cannot be read)",
    ),
    "dependency": (
        "import a_module_that_is_missing",
        "ModuleNotFoundError: No module named 'a_module_that_is_missing'",
    ),
}


@pytest.mark.parametrize(("source", "said"), RAISING.values(), ids=RAISING)
def test_a_plugin_that_fails_to_import_is_a_fault_and_hides_nobody(world, source, said):
    """USERS 5, 6, 8: whatever one plugin throws, it is a candidate with a fault and the others are there."""
    world.plugin("bad", source)
    world.backend("npu")
    bad = only("bad")
    assert bad.backend is None
    assert bad.fault is not None
    assert bad.fault.reason.startswith("the plugin failed to load: " + said)
    assert "entry point bad = 'accel_bad'" in bad.fault.reason
    assert "pip install --force-reinstall accel-bad" in bad.fault.hint
    assert only("npu").backend is not None


def test_the_first_cause_of_a_chain_is_named(world):
    """USERS 3: "failed to load" hid an undefined symbol."""
    world.plugin(
        "bad",
        "try:\n    raise OSError('undefined symbol: aclFoo')\n"
        "except OSError as e:\n    raise RuntimeError('failed to load') from e",
    )
    assert "OSError: undefined symbol: aclFoo" in only("bad").fault.reason


def test_root_cause_follows_context_unless_suppressed_and_survives_circles():
    def chain(suppress: bool) -> BaseException:
        try:
            try:
                raise OSError("inner")
            except OSError:
                if suppress:
                    raise RuntimeError("outer") from None
                raise RuntimeError("outer")  # noqa: B904 - the point of the test
        except RuntimeError as error:
            return error

    assert root_cause(chain(suppress=False)) == "OSError: inner"
    assert root_cause(chain(suppress=True)) == "RuntimeError: outer"
    circle, other = RuntimeError("a"), RuntimeError("b")
    circle.__cause__, other.__cause__ = other, circle
    assert root_cause(circle) == "RuntimeError: b"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("accel_missing", "ModuleNotFoundError: No module named 'accel_missing'"),
        ("accel_bad.missing", "ModuleNotFoundError: No module named 'accel_bad.missing'"),
        ("accel_bad:missing", "AttributeError: module 'accel_bad' has no attribute 'missing'"),
        (":missing", "names no module"),
        ("", "names no module"),
        ("accel bad", "ModuleNotFoundError"),
    ],
)
def test_an_entry_point_to_nowhere_is_a_fault(world, value, said):
    world.plugin("bad", declaring(arguments("bad")), value=value or " ")
    fault = only("bad").fault
    assert fault is not None
    assert said in fault.reason


def test_what_a_plugin_prints_does_not_reach_stdout(world, capfd):
    world.plugin(
        "npu", "print('module')\n" + declaring(arguments("npu")).replace("return", "print('hook'); return")
    )
    assert only("npu").backend is not None
    out, err = capfd.readouterr()
    assert out == ""
    assert "module" in err
    assert "hook" in err


@pytest.mark.parametrize("where", ["module", "hook"])
def test_keyboard_interrupt_passes(world, where):
    source = (
        "raise KeyboardInterrupt"
        if where == "module"
        else declaring().replace("return", "raise KeyboardInterrupt #")
    )
    world.plugin("bad", source)
    with pytest.raises(KeyboardInterrupt):
        discover()


RETURNED = {
    "None": ("None", "accel_backends() returned None (NoneType), expected accel_core.Backend"),
    "text": ("'npu'", "accel_backends() returned 'npu' (str)"),
    "number": ("5", "accel_backends() returned 5 (int)"),
    "dict": ("{'name': 'npu'}", "(dict)"),
    "list of other": (f"[Backend({arguments('npu')}), 'npu']", "accel_backends() returned 'npu' (str)"),
    "empty": ("[]", "accel_backends() returned an empty sequence"),
    "a class": ("Backend", "accel_backends() returned <class"),
}


@pytest.mark.parametrize(("returned", "said"), RETURNED.values(), ids=RETURNED)
def test_a_hook_that_returns_the_wrong_thing_is_an_invalid_declaration(world, returned, said):
    world.plugin("bad", f"{plugins.HEAD}\n@hookimpl\ndef accel_backends():\n    return {returned}\n")
    fault = only("bad").fault
    assert fault is not None
    assert said in fault.reason
    assert fault.hint == "report this to the maintainers of accel-bad"
    assert isinstance(fault.error, InvalidBackendError)


@pytest.mark.parametrize(
    "source",
    ["", "def accel_backends(): return []", f"{plugins.HEAD}\naccel_backends = 3"],
    ids=["none", "unmarked", "no function"],
)
def test_a_plugin_without_a_declaration_says_what_is_expected(world, source):
    world.plugin("bad", source)
    assert "the plugin declares no backend: expected a function accel_backends()" in only("bad").fault.reason


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (arguments("Bad Name"), "name 'Bad Name' is malformed"),
        (arguments("bad", "high"), "priority 'high' is str, expected int"),
        (arguments("bad", colour="red"), "unknown field 'colour'"),
        (arguments("bad", True), "priority True is bool"),
    ],
)
def test_a_bad_declaration_is_a_fault_that_names_it(world, given, said):
    world.plugin("bad", declaring(given))
    fault = only("bad").fault
    assert said in fault.reason
    assert "report this to the maintainers of accel-bad" in fault.hint


def test_a_declaration_for_a_newer_core_says_to_upgrade_the_core(world):
    world.plugin("bad", declaring(arguments("bad", colour="red", api_level=API_LEVEL + 1)))
    assert only("bad").fault.hint == "pip install --upgrade accel-core"


def test_a_newer_api_level_alone_is_still_a_candidate(world):
    world.backend("npu", api_level=API_LEVEL + 1)
    assert only("npu").backend.api_level == API_LEVEL + 1


def test_two_distributions_with_one_name_both_come_back(world):
    world.backend("npu", distribution="accel-npu")
    world.backend("npu", distribution="better-npu")
    assert [c.distribution for c in discover() if c.name == "npu"] == ["accel-npu", "better-npu"]


# ---------------------------------------------------------------------------- find: as few imports as can be


def imported(*modules: str) -> list[str]:
    return [m for m in modules if m in sys.modules]


def test_a_pin_imports_the_one_plugin_of_that_name(world):
    """USERS 22, 28: a pin means that the others are not even imported."""
    world.backend("npu")
    world.backend("mlu")
    assert names(find(parse_pin("npu"))) == ["npu"]
    assert imported("accel_npu", "accel_mlu") == ["accel_npu"]


def test_a_pin_to_a_built_in_imports_no_plugin(world):
    world.backend("npu")
    world.backend("cpu", distribution="fast-cpu")
    assert [c.distribution for c in find(parse_pin("cpu"))] == ["accel-core"]
    assert imported("accel_npu", "fast_cpu") == []
    assert [c.distribution for c in find(parse_pin("cpu@fast-cpu"))] == ["fast-cpu"]


def test_a_broken_plugin_that_is_pinned_comes_back_alone(world):
    world.plugin("npu", "raise ImportError('broken')")
    world.backend("mlu")
    (found,) = find(parse_pin("npu"))
    assert found.fault is not None
    assert imported("accel_mlu") == []


def test_a_backend_under_another_entry_point_is_still_found(world):
    world.plugin(
        "intel", declaring(arguments("xpu", 800), arguments("xpu", 790), arguments("xpu.external", 900))
    )
    assert names(find(parse_pin("xpu.external"))) == ["xpu.external"]
    assert [c.priority for c in find(parse_pin("xpu"))] == [800, 790]


def test_two_claims_to_a_pinned_name_come_back_without_an_import(world):
    world.backend("npu", distribution="accel-npu")
    world.backend("npu", distribution="better-npu")
    found = find(parse_pin("npu"))
    assert sorted(c.distribution for c in found) == ["accel-npu", "better-npu"]
    assert imported("accel_npu", "better_npu") == []
    assert [c.distribution for c in find(parse_pin("npu@Better.NPU"))] == ["better-npu"]
    assert imported("accel_npu", "better_npu") == ["better_npu"]


def test_an_entry_point_in_capitals_is_found_by_the_forgiving_pin(world):
    world.plugin("NPU", declaring(arguments("npu")), distribution="accel-npu")
    assert names(find(parse_pin("Npu"))) == ["npu"]


def test_a_name_that_nobody_declares_finds_nothing(world):
    world.backend("npu")
    assert find(parse_pin("tpu")) == ()
    assert find(parse_pin("npu@other")) == ()


# ---------------------------------------------------------------------------- a total order


def candidate(
    name: str,
    priority: int = 100,
    *,
    device_type: str = "",
    impersonates: str = "",
    distribution: str = "",
    value: str = "v",
) -> Candidate:
    provenance = Provenance(distribution or f"accel-{name}", "1.0", name, value)
    backend = Backend(
        name=name,
        priority=priority,
        device_type=device_type or name.partition(".")[0],
        impersonates=impersonates,
        provenance=provenance,
    )
    return Candidate(name, provenance, backend)


def orders(candidates: list[Candidate]) -> set[tuple[str, ...]]:
    """The ranked names, for many orders in which the candidates may be found."""
    shuffler = random.Random(0)
    if len(candidates) <= 4:
        ways = [list(p) for p in itertools.permutations(candidates)]
    else:
        ways = [shuffler.sample(candidates, len(candidates)) for _ in range(50)]
    return {
        tuple(f"{c.name}@{c.distribution}" if c.name == "same" else c.name for c in rank(way)) for way in ways
    }


def test_priority_then_name_then_distribution():
    """USERS 16: equal priorities must not change from run to run."""
    same = [candidate("same", distribution=d) for d in ("b", "a")]
    assert orders([candidate("zeta", 300), candidate("beta"), candidate("alpha"), *same]) == {
        ("zeta", "alpha", "beta", "same@a", "same@b")
    }


def test_the_builtin_cpu_is_below_every_plugin_of_its_priority():
    """USERS 13, 14: the CPU is the floor, never a rival."""
    cpu = discovery.builtin_candidates()[0]
    assert cpu.name == "cpu"
    assert orders([cpu, candidate("zzz", 0), candidate("aaa", 0)]) == {("aaa", "zzz", "cpu")}


def test_a_broken_plugin_ranks_above_the_cpu_so_that_it_is_reported(world):
    world.plugin("zzz", "raise ImportError")
    assert names(discover()) == ["generic", "zzz", "cpu"]


def test_an_impersonator_stands_before_what_it_impersonates():
    """USERS 11, 12: what it impersonates looks usable when it is not."""
    assert orders(
        [
            candidate("supa", 50, impersonates="cuda"),
            candidate("cuda", 200),
            candidate("npu", 700),
            candidate("mps", 150),
        ]
    ) == {("npu", "supa", "cuda", "mps")}


def test_an_impersonator_with_the_higher_number_stays_where_it_is():
    assert orders(
        [candidate("supa", 900, impersonates="cuda"), candidate("cuda", 200), candidate("npu", 700)]
    ) == {("supa", "npu", "cuda")}


def test_it_stands_before_every_backend_of_that_device_type():
    assert orders(
        [
            candidate("spoof", 1, impersonates="xpu"),
            candidate("xpu", 800),
            candidate("xpu.external", 900, device_type="xpu"),
        ]
    ) == {("spoof", "xpu.external", "xpu")}


def test_chains_of_impersonation_hold_together():
    assert orders(
        [
            candidate("c", 10, impersonates="b"),
            candidate("b", 20, impersonates="a"),
            candidate("a", 500),
            candidate("x", 499),
        ]
    ) == {("c", "b", "a", "x")}


def test_two_impersonators_keep_their_own_priorities_among_themselves():
    assert orders(
        [
            candidate("aa", 10, impersonates="cuda"),
            candidate("zz", 20, impersonates="cuda"),
            candidate("cuda", 200),
        ]
    ) == {("zz", "aa", "cuda")}


def test_circles_and_selves_end_in_a_total_order():
    circle = [
        candidate("a", 10, impersonates="b"),
        candidate("b", 20, impersonates="a"),
        candidate("self", 15, impersonates="self"),
    ]
    assert len(orders(circle)) == 1
    longer = [
        candidate("a", 1, impersonates="b"),
        candidate("b", 2, impersonates="c"),
        candidate("c", 3, impersonates="a"),
        candidate("d", 4, impersonates="a"),
    ]
    assert len(orders(longer)) == 1


def test_nothing_impersonated_is_there():
    assert orders([candidate("supa", 50, impersonates="cuda"), candidate("npu", 700)]) == {("npu", "supa")}


@pytest.mark.parametrize("seed", ["0", "1", "42"])
@pytest.mark.parametrize("backwards", [False, True])
def test_the_order_depends_on_neither_hash_seed_nor_install_order(world, seed, backwards):
    """USERS 16."""
    some = [("npu", {}), ("mlu", {}), ("supa", {"priority": 1, "impersonates": "mlu"}), ("sdaa", {})]
    for name, fields in reversed(some) if backwards else some:
        world.backend(name, **{"priority": 500, **fields})
    world.backend("npu", distribution="zz-npu")
    code = "import json\nfrom accel_core import discover\nprint(json.dumps([str(c) for c in discover()]))"
    if backwards:  # and the directory's own order reversed
        code = (
            "import os\nreal = os.listdir\nos.listdir = lambda p='.': sorted(real(p), reverse=True)\n" + code
        )
    found = world.child(code, variables={"PYTHONHASHSEED": seed}).answer
    assert [c.split(" (")[0] + c.partition("(")[2][:2] for c in found] == [
        "supaac",
        "mluac",
        "npuac",
        "npuzz",
        "sdaaac",
        "genericac",
        "cpuac",
    ]


# ---------------------------------------------------------------------------- op builders


def bringing(world, name: str, priority: int, body: str) -> None:
    world.backend(name, priority, extra=plugins.hook("accel_op_builders", "backend", body))


def test_op_builders_come_from_every_plugin_and_first_from_the_backends_own(world):
    bringing(world, "npu", 300, "return {'A': 'npu:A', 'B': 'npu:B'}")
    bringing(world, "ops", 100, "return {'A': 'ops:A', 'C': 'ops:C ' + backend.name}")
    bringing(world, "top", 900, "return {'A': 'top:A', 'C': 'top:C'}")
    backend = only("npu").backend
    assert discovery.op_builders(backend) == {"A": "npu:A", "B": "npu:B", "C": "top:C"}


@pytest.mark.parametrize(
    "body", ["raise OSError", "import sys; sys.exit(1)", "return 5", "return {'A': 1}.keys()"]
)
def test_op_builders_of_a_plugin_that_fails_are_passed_over(world, body):
    bringing(world, "bad", 900, body)
    world.plugin("broken", "raise ImportError")
    bringing(world, "npu", 300, "return {'A': 'npu:A'}")
    assert discovery.op_builders(only("npu").backend) == {"A": "npu:A"}
