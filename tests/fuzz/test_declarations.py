"""Whatever a plugin declares: a `Backend` or an error in words, and no declaration breaks what reads it."""

import json
import types
from dataclasses import fields, replace

import pytest
from accel_tests.asking import verdict_on
from accel_tests.fuzzing import fuzzed
from accel_tests.tools import words
from hypothesis import example
from hypothesis import strategies as st

from accel_core import Backend, hookimpl
from accel_core.backend import GRAMMARS, RECORDS, TORCH_BUILDS, Provenance
from accel_core.checks import Context, run_checks
from accel_core.errors import InvalidBackendError
from accel_core.exceptions import hint_for
from accel_core.explain.device_access import access_step
from accel_core.hardware import bus
from accel_core.hardware.placement import Placement
from accel_core.plugins import declared_backends, hooks_of, load_failure_verdict
from accel_core.settings import Settings
from accel_core.verdict import Status

NEEDED = ("name", "priority", "device_type")
FIELDS = sorted({field.name for field in fields(Backend)} - {"provenance"})
TEXT = st.text(max_size=20) | st.sampled_from(
    [
        "",
        "npu",
        "a.b",
        "/dev/x*",
        "/dev/[",
        "10de/03",
        "torch",
        "\0",
        "\x1b[2J",
        "\ud800",
    ]
)
LEAF = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | TEXT
    | st.binary(max_size=5)
)
#: Without a `repr`: more digits than Python prints.
HUGE = st.integers(4300, 5000).map(lambda digits: 10**digits)
ANYTHING = st.recursive(
    LEAF | HUGE,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(TEXT, inner, max_size=2)
    ),
    max_leaves=6,
)
#: As each field is written, with anything that its pattern may let through.
WORD = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
NAME = st.from_regex(r"[a-z][a-z0-9_]{0,8}(\.[a-z][a-z0-9_]{0,4})?", fullmatch=True)
PATH = st.from_regex(r"/[^/\n][^\n]{0,12}", fullmatch=True) | st.sampled_from(
    ["/dev/[", "/de[v/*", "/dev/x\0", "/*/*"]
)
PATTERN = TEXT | st.sampled_from(
    ["(", "[", "(?P<", "*", r"\1", "a{99999999999}", "(?<=a*)b"]
)
MARKERS = "os_name ~= '1'|extra == 'x'|python_version in '3.10'|os_name|implementation_version > 'x'"
REQUIREMENT = TEXT | st.sampled_from(
    [
        *(f"torch; {marker}" for marker in MARKERS.split("|")),
        *words("torch>=2 torch[x]>=1,<2 torch==1.* torch===wild"),
        "torch @ file:///x",
    ]
)


def some(form):
    """None, one or two of it."""
    return st.lists(form, max_size=2).map(tuple)


def record(name, **forms):
    """A record whose other fields are any text, texts or truth."""
    usual = {str: TEXT, bool: st.booleans(), tuple: some(TEXT)}
    kind = RECORDS[name]
    defaults = {field.name: usual[type(field.default)] for field in fields(kind)}
    return st.builds(kind, **{**defaults, **forms})


def damaged(name):
    """The same record with anything in it."""
    kind = RECORDS[name]
    return st.builds(kind, **{field.name: ANYTHING for field in fields(kind)})


VALID = {
    "name": NAME,
    "priority": st.integers(-(2**31), 2**31),
    "device_type": WORD.map(str.lower).filter(lambda w: w[0] != "_"),
    "vendor_import": st.just("json") | WORD | st.tuples(WORD, st.just("json")),
    "accelerator": st.just("") | st.builds("{}:{}".format, WORD, WORD),
    "requires": st.lists(REQUIREMENT, max_size=3).map(tuple),
    "hints": st.lists(st.tuples(PATTERN, TEXT), max_size=3).map(tuple),
    "hardware": record(
        "hardware",
        nodes=some(PATH),
        shared_nodes=some(PATH),
        pci_ids=some(
            st.from_regex(r"[0-9a-f]{4}(:[0-9a-f]{4})?(/[0-9a-f]{2})?", fullmatch=True)
        ),
        driver_file=st.just("") | PATH,
    ),
    "visibility": record(
        "visibility",
        variables=some(WORD),
        filters=some(WORD),
        grammar=st.sampled_from(GRAMMARS),
    ),
    "request": record("request", ray_noset=st.just("") | WORD),
    "torch_integration": record(
        "torch_integration",
        builds=some(st.sampled_from(TORCH_BUILDS)),
        takes_over=st.sampled_from(["", "cuda"]),
        wrapped_by=some(WORD),
        taken_over_by=some(WORD),
    ),
    "environment": record(
        "environment",
        forward=some(WORD.map("ACME_{}".format)),
        defaults=some(st.builds("{}={}".format, WORD, TEXT)),
    ),
    **dict.fromkeys(
        (
            "description",
            "url",
            "install_hint",
            "communication_backend",
            "compile_backend",
        ),
        TEXT,
    ),
}


@fuzzed(
    given=st.dictionaries(st.sampled_from(FIELDS), ANYTHING, max_size=8)
    | st.fixed_dictionaries(
        {"name": NAME, "priority": st.just(1), "device_type": st.just("npu")},
        optional={name: damaged(name) | record(name) for name in RECORDS},
    )
)
@example(given={"name": "npu", "priority": 10**5000, "device_type": "npu"})
@example(
    given={
        "name": "npu",
        "priority": 1,
        "device_type": "npu",
        "hardware": RECORDS["request"](),
    }
)
def test_any_values_are_a_declaration_or_a_named_fault(given):
    complete = set(NEEDED) <= given.keys()
    try:
        backend = Backend(**given)
    except InvalidBackendError as error:
        assert str(error)
        return
    except TypeError as error:
        assert not complete, error
        return
    assert replace(backend) == backend
    assert hash(backend) == hash(backend)
    assert backend.name in repr(backend)


@fuzzed(
    given=st.fixed_dictionaries(
        {name: VALID.pop(name) for name in NEEDED}, optional=VALID
    )
)
@example(
    given={"name": "x", "priority": 1, "device_type": "x", "hints": (("(", "hint"),)}
)
@example(
    given={
        "name": "x",
        "priority": 1,
        "device_type": "x",
        "hints": (("a{99999999999}", "hint"),),
    }
)
def test_no_declaration_breaks_what_reads_it(tmp_path, given):
    try:
        backend = Backend(**given)
    except InvalidBackendError:
        return
    root = str(tmp_path)
    source = Provenance("accel-x", "1", "x", "accel_x")
    verdict = verdict_on(replace(backend, provenance=source))
    broken = load_failure_verdict(source, ValueError("libx.so"))
    for seen in (bus.evidence(backend, root), bus.Evidence(nodes=("/dev/x",))):
        for pinned in (True, False):
            context = Context(Settings(), pinned, root)
            ruled_out, uncertain = run_checks(
                replace(verdict, hardware_signs=seen), context
            )
            for found in filter(None, (ruled_out, uncertain, broken)):
                assert found.name
                json.dumps(found.to_dict())
    hint_for(OSError("libx.so: cannot open"), backend.hints)
    for kind in ("kubernetes", "apptainer", "podman", "docker", "container", ""):
        for job in ("", "7"):
            access_step(Placement(kind, kind, job), backend)


@fuzzed(requires=st.lists(REQUIREMENT, min_size=1, max_size=3).map(tuple))
@example(requires=("torch; os_name ~= '1'",))
@example(requires=("json; " + "(" * 5000 + "os_name == 'x'" + ")" * 5000,))
@example(requires=("pytest>=" + "1" * 5000,))
def test_a_requirement_is_met_or_not_or_malformed(requires):
    backend = Backend(
        name="x", priority=1, device_type="x", vendor_import="json", requires=requires
    )
    verdict = verdict_on(
        replace(backend, provenance=Provenance("accel-x", "1", "x", "accel_x"))
    )
    found, _ = run_checks(verdict, Context(Settings()))
    assert found is None or found.status in (
        Status.INVALID,
        Status.NOT_INSTALLED,
        Status.INCOMPATIBLE,
    )


@fuzzed(declared=ANYTHING)
def test_what_a_hook_answers_is_declarations_or_a_named_fault(declared):
    plugin = types.ModuleType("accel_x")
    plugin.accel_backends = hookimpl(lambda: declared)
    plugin.accel_backends.__name__ = "accel_backends"
    with pytest.raises(InvalidBackendError):
        declared_backends(hooks_of(plugin))
