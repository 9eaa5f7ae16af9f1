"""Whatever a plugin or a vendor's package raises or answers, wherever, is a verdict, and hides nobody.

What ends or hangs the process is met in a child: test_isolated.py and test_probe_isolated.py.
"""

import json

import pytest
from accel_faults.catalogue import FAULTS, Kind
from accel_tests.asking import counting, judge, vendor
from accel_tests.plugins import HEAD, arguments, declaring, hook

from accel_core import Status
from accel_core.exceptions import root_cause

REPORT = "report this to the maintainers of accel-npu"
REINSTALL = "pip install --force-reinstall accel-npu, or pip uninstall accel-npu"
FAILED_TO_LOAD = "the plugin failed to load (entry point npu = 'accel_npu'): "
#: Each place with what a reason says of it, and the next step.
PLACES = {
    "import": (FAILED_TO_LOAD, REINSTALL),
    "accel_backends": (FAILED_TO_LOAD, REINSTALL),
    "vendor": ("torch_npu failed: ", ""),
    "accel_probe": ("accel_probe() of accel-npu 1.0 failed: ", REPORT),
    "accel_create": ("accel_create() of accel-npu 1.0 failed: ", REPORT),
    "device_count": ("json failed: ", ""),
    "accel_explain": ("torch_npu failed: OSError: libhal.so", ""),
}
#: Statements that raise, with what is said of them.
WAYS = {
    fault.name: (fault.source, fault.said)
    for fault in FAULTS
    if fault.kind is Kind.RAISES
} | {
    "an attribute": (
        "import json\njson._autoload",
        "AttributeError: module 'json' has no attribute '_autoload'",
    ),
    "a dependency": (
        "import not_here",
        "ModuleNotFoundError: No module named 'not_here'",
    ),
    "sys.exit text": (
        "import sys; sys.exit('bye')",
        "SystemExit: the code tried to exit the process with 'bye'",
    ),
    "no text": ("raise RuntimeError", "RuntimeError"),
    "a chain": (
        "try:\n    raise OSError('aclFoo')\nexcept OSError as e:\n    raise TypeError from e",
        "OSError: aclFoo",
    ),
}


def plant(world, place, source):
    """Install npu, which runs these statements in this place; mlu stands beside it."""
    world.backend("mlu")
    match place:
        case "import":
            world.plugin("npu", source)
        case "accel_backends":
            world.plugin("npu", HEAD + hook(place, "", source))
        case "vendor":
            vendor(world, source)
        case "device_count":
            counting(world, source.replace("\n", "\n        "))
        case "accel_explain":
            vendor(
                world,
                "raise OSError('libhal.so')",
                extra=hook(place, "backend, error", source),
            )
        case _:
            world.backend("npu", extra=hook(place, "backend, others", source))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", PLACES)
def test_what_raises_is_broken_with_its_cause(torch_world, place, way):
    """A missing library, another version, an exit: the reason says where and what."""
    source, said = WAYS[way]
    begin, hint = PLACES[place]
    plant(torch_world, place, source)
    found = judge()
    assert found.status is Status.BROKEN
    assert found.status.is_failure is True
    assert found.hint == hint
    assert found.reason.startswith(begin)
    if place != "accel_explain":
        assert said in found.reason.removeprefix(begin)
        assert said in found.cause
        assert found.error is not None
    json.dumps(found.to_dict())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", PLACES)
def test_what_raises_hides_no_other_backend(torch_world, place, way):
    """Whatever a vendor's package raises ends nobody else."""
    source, _ = WAYS[way]
    plant(torch_world, place, source)
    judge()
    assert judge("mlu").usable


@pytest.mark.parametrize("place", PLACES)
def test_keyboard_interrupt_passes(torch_world, place):
    plant(torch_world, place, "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        judge()


@pytest.mark.parametrize("place", PLACES)
def test_what_is_printed_does_not_reach_stdout(torch_world, place, capfd):
    plant(torch_world, place, "print('chatter')")
    judge()
    out, err = capfd.readouterr()
    assert out == ""
    assert "chatter" in err


INVALID = Status.INVALID
COUNT = "expected a number of devices from 0 to 999999"
NO_BACKEND = "the plugin declares no backend: expected a function accel_backends()"
OF_ADAPTERS = (
    "an object or class that an adapter supports (DeepSpeed's DeepSpeedAccelerator)"
)
ACCELERATOR = f"an accel_core.Accelerator, or {OF_ADAPTERS}"
#: Answers in each place, with what is said of them; also the status and the next step, if those are others.
ANSWERS = {
    "accel_backends": {
        "return None": NO_BACKEND,
        "return 'npu'": "accel_backends() returned 'npu' (str)",
        "return 5": "accel_backends() returned 5 (int)",
        "return {'name': 'npu'}": "(dict)",
        f"return [Backend({arguments('npu')}), 'npu']": "accel_backends() returned 'npu' (str)",
        "return []": NO_BACKEND,
        "return Backend": "accel_backends() returned <class",
    },
    "import": {
        "": NO_BACKEND,
        "def accel_backends(): return []": NO_BACKEND,
        f"{HEAD}\naccel_backends = 3": NO_BACKEND,
        declaring(arguments("Bad Name")): "name 'Bad Name' is malformed",
        declaring(arguments("npu", "high")): "priority 'high' is str, expected int",
        declaring(
            arguments("npu", hardware="red")
        ): "hardware 'red' is str, expected Hardware",
        declaring(arguments("npu", True)): "priority True is bool",
        "def (:": (f"{FAILED_TO_LOAD}SyntaxError", Status.BROKEN, REINSTALL),
    },
    "accel_probe": {
        "return None": ("", Status.USABLE, ""),
        "return True": "returned True (bool), expected accel_core.ProbeResult or None",
        "return 'yes'": "accel_probe() returned 'yes' (str)",
        "return ProbeResult('yes')": "accel_probe() returned usable='yes' (str), expected bool",
        "return ProbeResult(True, devices='2')": f"accel_probe() returned devices='2' (str), {COUNT}",
        "return ProbeResult(True, devices=-1)": f"devices=-1 (int), {COUNT}",
        "return ProbeResult(True, devices=10**30)": f"devices=1{'0' * 30} (int), {COUNT}",
        "return ProbeResult(False, ValueError('x'))": "reason=ValueError('x') (ValueError), expected str",
    },
    "accel_create": {  # what a plugin says in our words is its answer
        "return 5": f"accel_create() of accel-npu 1.0 returned 5 (int), expected {ACCELERATOR}",
        "raise accel_core.BackendUnavailableError('busy')": ("busy", Status.BROKEN, ""),
        "raise accel_core.DeclinedError('none', hint='buy one')": (
            "none",
            Status.NO_DEVICE,
            "buy one",
        ),
        "raise accel_core.DeclinedError('x', deferred=True)": (
            "x",
            Status.DEFERRED,
            "",
        ),
    },
    "device_count": {  # types are exact: callers calculate with the count
        "return -1": f"device_count() returned -1 (int), {COUNT}",
        "return 10**30": "device_count() returned 1000000000000000000000000000000 (int)",
        "return '2'": "device_count() returned '2' (str)",
        "return True": "device_count() returned True (bool)",
        "return None": "device_count() returned None (NoneType)",
        "return 1.0": "device_count() returned 1.0 (float)",
    },
}
ROWS = [(place, source) for place, answers in ANSWERS.items() for source in answers]


@pytest.mark.parametrize(("place", "source"), ROWS, ids=lambda text: text[:40])
def test_an_answer_that_does_not_fit_is_a_verdict(torch_world, place, source):
    row = ANSWERS[place][source]
    said, status, hint = (row, INVALID, REPORT) if isinstance(row, str) else row
    plant(torch_world, place, source)
    found = judge()
    assert found.status == status
    assert found.hint == hint
    assert said in found.reason
    json.dumps(found.to_dict())
    if place == "device_count":
        assert judge(pinned=True).status is INVALID


@pytest.mark.parametrize("body", ["return 5", "return None", "import sys; sys.exit()"])
def test_an_explanation_that_explains_nothing(torch_world, body):
    plant(torch_world, "accel_explain", body)
    assert judge().status is Status.BROKEN
    assert judge().hint == ""


@pytest.mark.parametrize(
    ("accelerator", "status", "said"),
    [
        (
            "missing_module:X",
            Status.BROKEN,
            " failed: ModuleNotFoundError: No module named 'missing_module'",
        ),
        ("json:missing", Status.BROKEN, " failed: AttributeError"),
        ("json:dumps", INVALID, "expected an accel_core.Accelerator"),
        (
            "json:JSONDecoder",
            INVALID,
            "returned <class 'json.decoder.JSONDecoder'> (type), expected an",
        ),
    ],
)
def test_a_class_that_cannot_be_built_is_the_plugins_fault_and_not_its_vendors(
    torch_world, accelerator, status, said
):
    torch_world.backend("npu", accelerator=accelerator)
    found = judge()
    assert found.status == status
    assert found.hint == REPORT
    assert found.reason.startswith(f"accelerator={accelerator!r} of accel-npu 1.0 ")
    assert said in found.reason


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("accel_missing", "ModuleNotFoundError: No module named 'accel_missing'"),
        (
            "accel_npu.missing",
            "ModuleNotFoundError: No module named 'accel_npu.missing'",
        ),
        (
            "accel_npu:missing",
            "AttributeError: module 'accel_npu' has no attribute 'missing'",
        ),
        (":missing", "has no module"),
        (" ", "has no module"),
        ("accel npu", "ModuleNotFoundError"),
    ],
)
def test_an_entry_point_to_nowhere_is_a_fault(world, value, said):
    world.plugin("npu", declaring(arguments("npu")), value=value)
    assert said in judge().reason


@pytest.mark.parametrize(
    ("name", "parameters", "said"),
    [
        ("accel_probe", "backend, flavour", "flavour"),
        ("accel_future", "backend", "unknown hook 'accel_future'"),
    ],
)
def test_a_hook_that_does_not_fit_is_invalid_and_hides_nobody(
    torch_world, name, parameters, said
):
    torch_world.backend("npu", extra=hook(name, parameters, "return None"))
    torch_world.backend("mlu")
    found = judge()
    assert found.status == INVALID
    assert found.hint == "pip install --upgrade accel-npu accel-core"
    assert found.reason.startswith(
        "a hook does not match accel-core's hook specification: PluginValidationError"
    )
    assert said in found.reason
    assert judge("mlu").usable


def test_root_cause_follows_context_unless_suppressed_and_survives_circles():
    outer, circle, other = RuntimeError("outer"), RuntimeError("a"), RuntimeError("b")
    outer.__context__ = OSError("inner")
    assert root_cause(outer) == "OSError: inner"
    outer.__suppress_context__ = True  # raise … from None
    assert root_cause(outer) == "RuntimeError: outer"
    circle.__cause__, other.__cause__ = other, circle
    assert root_cause(circle) == "RuntimeError: b"
