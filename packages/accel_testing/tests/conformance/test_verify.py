"""`accel verify`: the card of a backend that hangs, dies and lies, the vendor's file, and the certificate."""

import ast
import json
import os
import re
import signal
import sys
from xml.etree import ElementTree as ET

import pytest
from accel_tests.cards import on_record
from accel_tests.children import clean_environment, run_python
from accel_tests.layouts import GROUP, dist_info
from accel_tests.plugins import arguments, declaring, hook

from accel_core import Accelerator, SettingError
from accel_testing.conformance.catalogue import checks
from accel_testing.conformance.expected import read
from accel_testing.conformance.forks import scale_timeout
from accel_testing.conformance.groups import LEVELS
from accel_testing.conformance.records import ConformanceReport, Outcome, Result
from accel_testing.conformance.reporting import _missing_function

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: A backend whose members hang, end the process and lie, and one whose count starts its runtime: that sets a
#: variable, and refuses processes that are forked later.
DEVICES = """
import ctypes, os, signal, time
import torch
from accel_core.interface.cpu import CPUAccelerator

class Wild(CPUAccelerator):
    def __init__(self, backend):
        super().__init__(backend)
        torch.use_deterministic_algorithms(True)
    def device_uuid(self, device_index=None):
        os._exit(7)
    def get_compile_backend(self):
        return ctypes.string_at(0)
    def pin_memory_alignment(self):
        if "SIM_STOP" in os.environ:
            os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(600)
    def export_envs(self):
        return ["A"]
    def random(self):
        return torch.get_device_module("cpu").Graph()

def start():
    if os.environ.setdefault("SIM_RUNTIME", str(os.getpid())) != str(os.getpid()):
        raise RuntimeError("cannot re-initialise the runtime in a forked subprocess")

class Starting(CPUAccelerator):
    def device_count(self):
        start()
        return super().device_count()
    def device(self, *arguments):
        start()
        return super().device(*arguments)
"""


def verify(*words, folder, **variables):
    environ = clean_environment(PYTHONPATH=str(folder), **variables)
    return run_python(
        ["-m", "accel_core", "verify", *words], environ, cwd=folder, timeout=300
    )


def told(folder, *names, words=(), backend="wild", status=1):
    """Outcome and message of those checks of `interface`, by name."""
    named = [word for name in names for word in ("--check", f"interface.{name}")]
    done = verify(backend, "--json", *words, *named, folder=folder)
    assert done.returncode == status, done.stderr
    rows = json.loads(done.stdout)["checks"]
    return {
        row["name"].removeprefix("interface."): (row["outcome"], row["message"])
        for row in rows
    }


@pytest.fixture
def install(tmp_path):
    """`install(name, **fields)`: a folder with that backend, whose class may be one of `DEVICES`."""
    pytest.importorskip("torch")

    def made(name, *, extra="", **fields):
        source = declaring(arguments(name, **{"device_type": "cpu", **fields})) + extra
        modules = {
            f"accel_{name}": source,
            "wild_devices": DEVICES,
            "crash_sdk": "import ctypes; ctypes.string_at(0)",
        }
        return dist_info(
            tmp_path, f"accel-{name}", "1.0", {GROUP: {name: f"accel_{name}"}}, modules
        )

    return made


def test_what_hangs_and_what_dies_leaves_the_rest(install):
    kinds = ("identity", "identifiers", "forwarded_variables", "host_memory", "vendor_defaults",
             "random_module", "compile_backend")  # fmt: skip
    names = [f"answers.{kind}" for kind in kinds]
    found = told(
        install("wild", accelerator="wild_devices:Wild"),
        *names,
        words=("--check-timeout", "20"),
    )
    assert (
        found["answers.identity"] == found["answers.vendor_defaults"] == ("passed", "")
    )
    assert found["answers.identifiers"][0] == "died"
    assert "exited with status 7" in found["answers.identifiers"][1]
    assert found["answers.host_memory"][0] == "hung"
    outcome, why = found["answers.compile_backend"]
    assert outcome == "died"
    assert re.search(r"(killed by|died of) SIGSEGV", why), why
    assert re.search(r" in string_at \(.*ctypes.__init__\.py, line \d+\)$", why), why
    assert found["answers.forwarded_variables"] == (
        "failed", "export_envs() has ['A']; expected prefixes of three letters or more",
    )  # fmt: skip
    # As FSDP2 asks it for its streams: "module has no attribute" tells nobody who asked.
    asked = "torch asks the device's module for it: give torch.cpu a Graph"
    why = f"AttributeError: module 'torch.cpu' has no attribute 'Graph'. {asked}"
    assert found["answers.random_module"] == ("failed", why)


def test_what_was_found_before_an_interruption_is_told(install):
    folder = install("wild", accelerator="wild_devices:Wild")
    kinds = (
        "answers.identity",
        "answers.host_memory",
        "traces.making_keeps_torchs_settings",
    )
    named = [word for kind in kinds for word in ("--check", f"interface.{kind}")]
    done = verify("wild", "--json", *named, folder=folder, SIM_STOP="1")
    assert done.returncode == -signal.SIGINT, done.stderr
    assert [row["outcome"] for row in json.loads(done.stdout)["checks"]] == [
        "passed",
        "not run",
        "not run",
    ]


#: What a vendor says of some checks.
EXPECTED = """
[skip]
"interface.answers.identifiers" = "it ends the process"
[fails]
"interface.answers.forwarded_variables" = "one letter is enough"
"interface.answers.identity" = "it does not"
"""


def test_what_the_vendors_file_says(install):
    folder = install("wild", accelerator="wild_devices:Wild")
    (folder / "verify.toml").write_text(EXPECTED)
    names = [
        f"answers.{kind}" for kind in ("identity", "identifiers", "forwarded_variables")
    ]
    names.append("traces.making_keeps_torchs_settings")
    assert told(
        folder, *names, words=("--expected", "verify.toml", "--markdown", "card.md")
    ) == {
        "answers.identity": ("unexpected pass", "[XPASS(strict)] it does not"),
        "answers.identifiers": ("skipped", "it ends the process"),
        "answers.forwarded_variables": ("expected failure", "one letter is enough"),
        "traces.making_keeps_torchs_settings": (
            "failed",
            "making the accelerator changes are_deterministic_algorithms_enabled from False to True",
        ),
    }
    lines = (folder / "card.md").read_text().splitlines()
    assert (
        "- `interface.answers.identity`, unexpected pass: `[XPASS(strict)] it does not`"
        in lines
    )
    refused = verify("wild", "--certify", "--expected", "verify.toml", folder=folder)
    assert refused.returncode == 2
    assert "[skip]" in refused.stderr


def test_a_package_that_ends_its_process_is_told_as_accel_why_tells_it(install):
    folder = install(
        "crash", device_type="crash", vendor_import="crash_sdk", install_hint="x"
    )
    found = told(folder, "answers.identity", backend="crash")
    outcome, why = found["answers.identity"]
    assert outcome == "not run"
    assert "importing crash_sdk (accel-crash 1.0)" in why
    assert "reinstall the vendor's package, or set ACCEL_BLOCK=crash" in why


STARTING = ("traces.making_starts_no_device", "traces.making_keeps_the_environment")


def test_a_count_that_starts_the_device_fails_with_what_helps(install):
    folder = install("sim", accelerator="wild_devices:Starting")
    for outcome, message in told(folder, *STARTING, backend="sim").values():
        assert outcome == "failed"
        assert message.endswith(
            "; if device_count() starts the device, count without the runtime in accel_probe"
        )


def test_a_count_in_accel_probe_starts_no_device(install):
    counts = hook(
        "accel_probe", "backend, others", "return ProbeResult(True, devices=1)"
    )
    folder = install("sim", accelerator="wild_devices:Starting", extra=counts)
    outcomes = told(folder, *STARTING, backend="sim", status=0)
    assert [outcome for outcome, _ in outcomes.values()] == ["passed", "passed"]


@pytest.mark.parametrize(
    ("words", "more"),
    [
        (
            "Custom backend 'xpu' not implement 'torch.xpu.Stream'",
            "give torch.xpu a Stream",
        ),  # FSDP's
        (
            "rank 1: AttributeError: module 'torch.xpu' has no attribute 'Event'",
            "give torch.xpu a Event",
        ),
        ("module 'torch.nn' has no attribute 'Event'", ""),
        ("a sum of four ones is 3", ""),
    ],
)
def test_only_a_devices_module_is_to_be_given_something(words, more):
    pytest.importorskip("torch")
    assert _missing_function(words).rpartition(": ")[2] == more


def test_a_vendors_own_tests_are_none_of_the_files_business(tmp_path):
    """In a suite that subclasses the kit, and has a test with the name of a check."""
    (tmp_path / "expected.toml").write_text(
        '[skip]\n"declaration.hooks_fit" = "not now"\n'
    )
    (tmp_path / "test_ours.py").write_text(
        "from accel_testing.conformance import test_declaration as kit\n\n"
        "def test_hooks_fit(): pass\n\n"
        "class TestCPU(kit.TestDeclaration):\n    backend = 'cpu'\n"
    )
    options = [
        "-p", "accel_testing.conformance.option", "--accel-expected", "expected.toml", "-k", "hooks_fit",
    ]  # fmt: skip
    command = [
        "-m",
        "pytest",
        "-q",
        "-rs",
        "-c",
        os.devnull,
        "--rootdir",
        ".",
        *options,
        "test_ours.py",
    ]
    done = run_python(
        command, clean_environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"), cwd=tmp_path
    )
    assert "1 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    assert "not now" in done.stdout


def test_the_certificate(tmp_path):
    words = ("--level", "0", "--certify", "--junit", "j.xml", "--markdown", "card.md")
    done = verify("cpu", *words, folder=tmp_path).succeeded()
    [place] = (tmp_path / "results").glob("*/cpu-*")
    assert sorted(path.name for path in place.iterdir()) == [
        "badge.svg", "card.json", "card.md", "junit.xml", "product.toml", "report.json",
    ]  # fmt: skip
    assert (tmp_path / "j.xml").read_bytes() == (place / "junit.xml").read_bytes()
    report = json.loads((place / "report.json").read_text())
    product = tomllib.loads((place / "product.toml").read_text())
    suite = ET.fromstring((place / "junit.xml").read_text())
    total = len([check for check in checks() if check.level == 0])
    assert (
        product["score"]
        == report["score"]
        == f"accel L0 · {report['counts']['passed']}/{total}"
    )
    assert int(suite.attrib["tests"]) == len(suite) == total
    assert report["score"] in (place / "badge.svg").read_text()
    assert (
        f"| 0 | {LEVELS[0]} | {report['counts']['passed']} of {total} |"
        in (place / "card.md").read_text()
    )
    # As the cards in the docs' table of scores.
    assert (
        json.loads((place / "card.json").read_text()).keys() == on_record("cpu").keys()
    )
    assert report["score"] in done.stdout


def test_checks_have_more_time_on_a_busy_machine(monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (12.0, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert scale_timeout(60) == 360


def test_a_level_of_which_nothing_passed_is_not_reached():
    """No framework is installed, or there is one device for two ranks: good, and no level to be shown."""

    def card(of_frameworks):
        results = [
            Result(check, Outcome.PASSED) for check in checks() if check.level < 4
        ]
        results += [
            Result(check, Outcome.NOT_CLAIMED) for check in checks() if check.level == 4
        ]
        results[-1] = results[-1]._replace(outcome=of_frameworks)
        return ConformanceReport("acme", "", "", "", "", "", "", 4, tuple(results), 1.0)

    assert card(Outcome.PASSED).reached == 4
    assert card(Outcome.NOT_CLAIMED).reached == 3
    assert card(Outcome.FAILED).reached == 3


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("cpu", "--certify", "--check", "declaration.hooks_fit"), 2, "leave --check out"),
        (("cpu", "--junit", "no/x.xml"), 2, "there is no folder no. Make it first: mkdir -p no"),
        (("nobody",), 2, "accel verify nobody: no installed distribution declares nobody"),
        # Without the device a simulated one is named.
        (("mlu", "--check", "interface.answers.identity"), 1, "accel simulate mlu -- accel verify mlu"),
    ],
)  # fmt: skip
def test_what_cannot_run_says_why(tmp_path, words, status, said):
    if "mlu" in words:
        pytest.importorskip("torch")
        pytest.importorskip("accel_simulated")
    done = verify(*words, folder=tmp_path)
    assert done.returncode == status
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '[skip]\n"compute.queues.events_tel_time" = "x"',
            "did you mean 'compute.queues.events_tell_time'?",
        ),
        ('[fails]\n"interface.answers.identity" = " "', "has no reason"),
        ('[fails]\n"interface.answers.identity" = 3', "has no reason"),
        ('[xfail]\n"interface.answers.identity" = "x"', "unknown section [xfail]"),
        ("skip = 3", "[skip] is no table"),
        ("[skip", "is no TOML"),
        (
            '[skip]\n"declaration.hooks_fit"="a"\n[fails]\n"declaration.hooks_fit"="b"',
            "in both",
        ),
    ],
)
def test_a_file_that_cannot_be_followed(tmp_path, text, words):
    file = tmp_path / "expected.toml"
    file.write_text(text)
    with pytest.raises(SettingError) as caught:
        read(file)
    assert words in str(caught.value)
    assert str(file) in str(caught.value)


def test_every_member_is_missing_function_by_a_check():
    """By its name in the checks' sources: a new member comes with one."""
    asked = set()
    for file in {check.group.file for check in checks()}:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                asked.add(node.attr)
            elif isinstance(node, ast.Constant):
                asked.add(node.value)
    assert {
        name for name in dir(Accelerator) if not name.startswith("_")
    } - asked == set()


def test_every_check_says_why():
    assert len(checks()) >= 99
    assert (
        len({check.name for check in checks()})
        == len({check.node for check in checks()})
        == len(checks())
    )
    # `AcceleratorTests` is all classes in one: a name of two would be one check.
    assert len({check.node.partition("::")[2] for check in checks()}) == len(checks())
    assert [check.name for check in checks() if not check.why.endswith(".")] == []
