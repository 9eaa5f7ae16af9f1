"""`accel verify`: the card of a backend that hangs, dies and lies, the vendor's file, and the certificate."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from accel_tests.children import clean_environment
from accel_tests.layouts import GROUP, dist_info
from accel_tests.plugins import arguments, declaring

from accel_core import Accelerator, SettingError
from accel_core.backend import InTorch
from accel_testing.conformance.catalogue import checks
from accel_testing.conformance.expected import read
from accel_testing.conformance.records import Card, Outcome, Result
from accel_testing.conformance.reporting import _asked_for

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

WILD = """
import ctypes, os, time
import torch
from accel_core.accelerators.cpu import CPUAccelerator

class Wild(CPUAccelerator):
    def __init__(self, backend):
        super().__init__(backend)
        torch.use_deterministic_algorithms(True)
    def device_uuid(self, device_index=None):
        os._exit(7)
    def get_compile_backend(self):
        return ctypes.string_at(0)
    def pin_memory_alignment(self):
        time.sleep(600)
    def export_envs(self):
        return ["A"]
"""


def verify(*words: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = clean_environment(PYTHONPATH=str(folder), **variables)
    command = [sys.executable, "-m", "accel_core", "verify", *words]
    return subprocess.run(
        command, env=environ, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


def outcomes(done: subprocess.CompletedProcess[str]) -> dict[str, tuple[str, str]]:
    document: dict[str, Any] = json.loads(done.stdout)
    return {row["name"]: (row["outcome"], row["message"]) for row in document["checks"]}


@pytest.fixture
def wild(tmp_path: Path) -> Path:
    """A folder with an installed backend whose members hang, end the process and lie."""
    source = declaring(arguments("wild", device_type="cpu", accelerator="accel_wild_device:Wild"))
    modules = {"accel_wild": source, "accel_wild_device": WILD}
    return dist_info(tmp_path, "accel-wild", "1.0", {GROUP: {"wild": "accel_wild"}}, modules)


@pytest.mark.slow
def test_what_hangs_and_what_dies_leaves_the_rest(wild: Path) -> None:
    pytest.importorskip("torch")
    kinds = (
        "identity", "identifiers", "forwarded_variables", "host_memory", "random_module", "compile_backend",
    )  # fmt: skip
    named = [word for kind in kinds for word in ("--check", f"interface.answers.{kind}")]
    done = verify("wild", "--json", "--check-timeout", "8", *named, folder=wild)
    assert done.returncode == 1, done.stderr
    told = outcomes(done)
    assert told["interface.answers.identity"] == ("passed", "")
    assert told["interface.answers.random_module"] == ("passed", "")
    assert told["interface.answers.identifiers"][0] == "died"
    assert "exited with status 7" in told["interface.answers.identifiers"][1]
    assert told["interface.answers.host_memory"][0] == "hung"
    died = told["interface.answers.compile_backend"]
    assert died[0] == "died"
    assert re.search(r"killed by SIGSEGV|died of SIGSEGV", died[1]), died
    assert re.search(r" in string_at \(.*ctypes.__init__\.py, line \d+\)$", died[1]), died
    assert told["interface.answers.forwarded_variables"] == (
        "failed",
        "export_envs() has ['A']; expected prefixes of three letters or more",
    )


@pytest.mark.slow
def test_a_package_that_ends_its_process_is_told_as_accel_why_tells_it(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    source = declaring(arguments("crash", device_type="crash", vendor_import="crash_sdk", install_hint="x"))
    modules = {"accel_crash": source, "crash_sdk": "import ctypes; ctypes.string_at(0)"}
    folder = dist_info(tmp_path, "accel-crash", "1.0", {GROUP: {"crash": "accel_crash"}}, modules)
    done = verify("crash", "--json", "--level", "1", folder=folder)
    outcome, why = outcomes(done)["interface.answers.identity"]
    assert (done.returncode, outcome) == (1, "not run"), done.stderr
    assert "importing crash_sdk (accel-crash 1.0)" in why
    assert "reinstall the vendor's package, or set ACCEL_BLOCK=crash" in why


#: A device whose count starts its runtime: that sets a variable, and refuses processes that are forked later.
STARTING = """
import os
from accel_core.accelerators.cpu import CPUAccelerator

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


@pytest.mark.slow
@pytest.mark.parametrize("declared", [False, True])
def test_what_the_declaration_cures_names_its_field(tmp_path: Path, *, declared: bool) -> None:
    pytest.importorskip("torch")
    field = {"in_torch": InTorch(in_child="count")} if declared else {}
    source = declaring(arguments("sim", device_type="cpu", accelerator="sim_device:Starting", **field))
    modules = {"accel_sim": source, "sim_device": STARTING}
    folder = dist_info(tmp_path, "accel-sim", "1.0", {GROUP: {"sim": "accel_sim"}}, modules)
    kinds = ("making_starts_no_device", "making_keeps_the_environment")
    named = [word for kind in kinds for word in ("--check", f"interface.traces.{kind}")]
    for outcome, why in outcomes(verify("sim", "--json", *named, folder=folder)).values():
        assert outcome == ("passed" if declared else "failed"), why
        assert declared or why.endswith(
            "; if device_count() starts the device, declare InTorch(in_child='count')"
        ), why


@pytest.mark.slow
def test_what_torch_asks_the_devices_module_for_is_named(tmp_path: Path) -> None:
    """As FSDP2 asks it for its streams: "module has no attribute" tells nobody who asked."""
    pytest.importorskip("torch")
    source = declaring(arguments("sim", device_type="cpu", accelerator="sim_device:Bare"))
    device = (
        "import torch\nfrom accel_core.accelerators.cpu import CPUAccelerator\n"
        "class Bare(CPUAccelerator):\n"
        "    def export_envs(self):\n        return torch.get_device_module('cpu').Graph()\n"
    )
    folder = dist_info(
        tmp_path,
        "accel-sim",
        "1.0",
        {GROUP: {"sim": "accel_sim"}},
        {"accel_sim": source, "sim_device": device},
    )
    done = verify("sim", "--json", "--check", "interface.answers.forwarded_variables", folder=folder)
    outcome, why = outcomes(done)["interface.answers.forwarded_variables"]
    assert outcome == "failed"
    assert why == (
        "AttributeError: module 'torch.cpu' has no attribute 'Graph'. torch asks the device's module for it: "
        "give torch.cpu a Graph"
    )


@pytest.mark.parametrize(
    ("words", "more"),
    [
        ("Custom backend 'xpu' not implement 'torch.xpu.Stream'", "give torch.xpu a Stream"),  # FSDP's
        ("rank 1: AttributeError: module 'torch.xpu' has no attribute 'Event'", "give torch.xpu a Event"),
        ("module 'torch.nn' has no attribute 'Event'", ""),
        ("a sum of four ones is 3", ""),
    ],
)
def test_only_a_devices_module_is_to_be_given_something(words: str, more: str) -> None:
    pytest.importorskip("torch")
    told = _asked_for(words)
    assert told.rpartition(": ")[2] == more


@pytest.mark.slow
def test_what_the_vendors_file_says(wild: Path) -> None:
    pytest.importorskip("torch")
    file = wild / "verify.toml"
    file.write_text(
        '[skip]\n"interface.answers.identifiers" = "it ends the process"\n'
        '[fails]\n"interface.answers.forwarded_variables" = "one letter is enough"\n'
        '"interface.answers.identity" = "it does not"\n'
    )
    kinds = ("identity", "identifiers", "forwarded_variables")
    named = [word for kind in kinds for word in ("--check", f"interface.answers.{kind}")]
    named += ["--check", "interface.traces.making_keeps_torchs_settings"]
    done = verify("wild", "--json", "--expected", str(file), *named, folder=wild)
    assert outcomes(done) == {
        "interface.answers.identity": ("unexpected pass", "[XPASS(strict)] it does not"),
        "interface.answers.identifiers": ("skipped", "it ends the process"),
        "interface.answers.forwarded_variables": ("expected failure", "one letter is enough"),
        "interface.traces.making_keeps_torchs_settings": (
            "failed",
            "making the accelerator changes are_deterministic_algorithms_enabled from False to True",
        ),
    }
    assert done.returncode == 1
    refused = verify("wild", "--certify", "--expected", str(file), folder=wild)
    assert refused.returncode == 2
    assert "[skip]" in refused.stderr


def test_a_vendors_own_tests_are_none_of_the_files_business(tmp_path: Path) -> None:
    """In a suite that subclasses the kit, and has a test with the name of a check."""
    (tmp_path / "expected.toml").write_text('[skip]\n"declaration.hooks_fit" = "not now"\n')
    (tmp_path / "test_ours.py").write_text(
        "from accel_testing.conformance import test_declaration as kit\n\n"
        "def test_hooks_fit(): pass\n\n"
        "class TestCPU(kit.TestDeclaration):\n    backend = 'cpu'\n"
    )
    options = [
        "-p",
        "accel_testing.conformance.option",
        "--accel-expected",
        "expected.toml",
        "-k",
        "hooks_fit",
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-c", os.devnull, "--rootdir", ".", *options]
    environ = clean_environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    done = subprocess.run(
        [*command, "test_ours.py"], env=environ, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "1 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    assert "not now" in done.stdout


def test_the_certificate(tmp_path: Path) -> None:
    done = verify("cpu", "--level", "0", "--certify", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    [place] = (tmp_path / "results").glob("*/cpu-*")
    assert sorted(path.name for path in place.iterdir()) == [
        "badge.svg", "junit.xml", "product.toml", "report.json",
    ]  # fmt: skip
    report = json.loads((place / "report.json").read_text())
    product = tomllib.loads((place / "product.toml").read_text())
    suite = ET.fromstring((place / "junit.xml").read_text())
    total = len([check for check in checks() if check.level == 0])
    assert product["score"] == report["score"] == f"accel L0 · {report['counts']['passed']}/{total}"
    assert int(suite.attrib["tests"]) == len(suite) == total
    assert report["score"] in (place / "badge.svg").read_text()
    assert report["score"] in done.stdout


def test_a_level_of_which_nothing_passed_is_not_reached() -> None:
    """No framework is installed, or there is one device for two ranks: good, and no level to be shown."""

    def card(of_frameworks: Outcome) -> Card:
        results = [Result(check, Outcome.PASSED) for check in checks() if check.level < 4]
        results += [Result(check, Outcome.NOT_CLAIMED) for check in checks() if check.level == 4]
        results[-1] = results[-1]._replace(outcome=of_frameworks)
        return Card("acme", "", "", "", "", "", "", 4, tuple(results), 1.0)

    assert card(Outcome.PASSED).reached == 4
    assert card(Outcome.NOT_CLAIMED).reached == 3
    assert card(Outcome.FAILED).reached == 3


def test_single_checks_are_not_certified(tmp_path: Path) -> None:
    done = verify("cpu", "--certify", "--check", "declaration.hooks_fit", folder=tmp_path)
    assert done.returncode == 2
    assert "leave --check out" in done.stderr


def test_what_is_not_installed_could_not_run(tmp_path: Path) -> None:
    done = verify("nobody", folder=tmp_path)
    assert done.returncode == 2
    assert "accel verify nobody: no installed distribution declares nobody" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_without_the_device_a_simulated_one_is_named(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("accel_simulated")
    done = verify("mlu", "--check", "interface.answers.identity", folder=tmp_path)
    assert done.returncode == 1
    assert "accel simulate mlu -- accel verify mlu" in done.stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[skip]\n"compute.queues.events_tel_time" = "x"', "did you mean 'compute.queues.events_tell_time'?"),
        ('[fails]\n"interface.answers.identity" = " "', "has no reason"),
        ('[fails]\n"interface.answers.identity" = 3', "has no reason"),
        ('[xfail]\n"interface.answers.identity" = "x"', "unknown section [xfail]"),
        ("skip = 3", "[skip] is no table"),
        ("[skip", "is no TOML"),
        ('[skip]\n"declaration.hooks_fit"="a"\n[fails]\n"declaration.hooks_fit"="b"', "in both"),
    ],
)
def test_a_file_that_cannot_be_followed(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "expected.toml"
    file.write_text(text)
    with pytest.raises(SettingError) as caught:
        read(file)
    assert words in str(caught.value)
    assert str(file) in str(caught.value)


def test_every_member_is_asked_for_by_a_check() -> None:
    """By its name in the checks' sources: a new member comes with one."""
    asked = set()
    for file in {check.group.file for check in checks()}:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                asked.add(node.attr)
            elif isinstance(node, ast.Constant):
                asked.add(node.value)
    assert {name for name in dir(Accelerator) if not name.startswith("_")} - asked == set()


def test_every_check_says_why() -> None:
    assert len(checks()) >= 99
    assert len({check.name for check in checks()}) == len({check.node for check in checks()}) == len(checks())
    # `AcceleratorTests` is all classes in one: a name of two would be one check.
    assert len({check.node.partition("::")[2] for check in checks()}) == len(checks())
    assert [check.name for check in checks() if not check.why.endswith(".")] == []
