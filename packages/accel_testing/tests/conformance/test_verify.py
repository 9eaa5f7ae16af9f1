"""`accel verify`: the card of a backend that hangs, dies and lies, the vendor's file, and the certificate."""

import ast
import functools
import json
import os
import re
import signal
import sys
from pathlib import Path
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

#: `Wild` and `Starting`, as a file of the installed distribution.
DEVICES = Path(__file__).with_name("wild_devices.py").read_text("utf-8")


def verify(*words, folder, **variables):
    environ = clean_environment(PYTHONPATH=str(folder), **variables)
    return run_python(
        ["-m", "accel_core", "verify", *words], environ, cwd=folder, timeout=300
    )


def outcomes_of(folder, *names, words=(), backend="wild", status=1):
    """Outcome and message of those checks of `interface`, by name."""
    named = [word for name in names for word in ("--check", f"interface.{name}")]
    done = verify(backend, "--json", *words, *named, folder=folder)
    assert done.returncode == status, done.stderr
    rows = json.loads(done.stdout)["checks"]
    return {
        row["name"].removeprefix("interface."): (row["outcome"], row["message"])
        for row in rows
    }


def installed_in(folder, name, *, extra="", **fields):
    """Install that backend in the folder; its class may be one of wild_devices.py."""
    pytest.importorskip("torch")
    source = declaring(arguments(name, **{"device_type": "cpu", **fields})) + extra
    modules = {
        f"accel_{name}": source,
        "wild_devices": DEVICES,
        "crash_sdk": "import ctypes; ctypes.string_at(0)",
    }
    groups = {GROUP: {name: f"accel_{name}"}}
    return dist_info(folder, f"accel-{name}", "1.0", groups, modules)


@pytest.fixture
def install(tmp_path):
    """`install(name, **fields)`: a folder with that backend."""
    return functools.partial(installed_in, tmp_path)


#: What comes of checks on `Wild`.
WILD = {
    "answers.identity": "passed",
    "answers.identifiers": "died",
    "answers.forwarded_variables": "failed",
    "answers.host_memory": "hung",
    "answers.vendor_defaults": "passed",
    "answers.random_module": "failed",
    "answers.compile_backend": "died",
}


@pytest.fixture(scope="module")
def wild_outcomes(tmp_path_factory):
    """Outcome and message of those checks, by name, of one run of `accel verify`."""
    folder = tmp_path_factory.mktemp("wild")
    installed_in(folder, "wild", accelerator="wild_devices:Wild")
    return outcomes_of(folder, *WILD, words=("--check-timeout", "20"))


def test_a_check_that_hangs_or_dies_leaves_the_others_their_outcomes(wild_outcomes):
    outcomes = {name: outcome for name, (outcome, _) in wild_outcomes.items()}
    assert outcomes == WILD


def test_a_check_that_passes_has_no_message(wild_outcomes):
    assert wild_outcomes["answers.identity"] == ("passed", "")
    assert wild_outcomes["answers.vendor_defaults"] == ("passed", "")


def test_a_check_that_ends_the_process_is_told_with_the_status(wild_outcomes):
    outcome, why = wild_outcomes["answers.identifiers"]
    assert outcome == "died"
    assert "exited with status 7" in why


def test_a_check_that_a_signal_ends_is_told_with_the_line(wild_outcomes):
    outcome, why = wild_outcomes["answers.compile_backend"]
    assert outcome == "died"
    assert re.search(r"(killed by|died of) SIGSEGV", why), why
    assert re.search(r" in string_at \(.*ctypes.__init__\.py, line \d+\)$", why), why


def test_a_wrong_answer_fails_with_what_was_expected(wild_outcomes):
    outcome, why = wild_outcomes["answers.forwarded_variables"]
    assert outcome == "failed"
    expected = "expected prefixes of three letters or more"
    assert why == f"export_envs() has ['A']; {expected}"


def test_a_name_that_torch_asks_of_the_devices_module_is_told_as_that(wild_outcomes):
    """As FSDP2 asks it for its streams: "module has no attribute" tells nobody who asked."""
    outcome, why = wild_outcomes["answers.random_module"]
    asked = "torch calls this function in the device's module: add Graph to torch.cpu"
    missing = "AttributeError: module 'torch.cpu' has no attribute 'Graph'"
    assert outcome == "failed"
    assert why == f"{missing}. {asked}"


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


@pytest.fixture
def wild_with_file(install):
    """The folder of `Wild`, with the vendor's file verify.toml."""
    folder = install("wild", accelerator="wild_devices:Wild")
    (folder / "verify.toml").write_text(EXPECTED)
    return folder


UNEXPECTED_PASS = "[XPASS(strict)] it does not"


def test_the_vendors_file_skips_and_expects_failures(wild_with_file):
    names = [
        "answers.identity",
        "answers.identifiers",
        "answers.forwarded_variables",
        "traces.making_keeps_torchs_settings",
    ]
    words = ("--expected", "verify.toml")
    assert outcomes_of(wild_with_file, *names, words=words) == {
        "answers.identity": ("unexpected pass", UNEXPECTED_PASS),
        "answers.identifiers": ("skipped", "it ends the process"),
        "answers.forwarded_variables": ("expected failure", "one letter is enough"),
        "traces.making_keeps_torchs_settings": (
            "failed",
            "creating the accelerator changes are_deterministic_algorithms_enabled from False to True",
        ),
    }


def test_an_unexpected_pass_is_in_the_card(wild_with_file):
    words = ("--expected", "verify.toml", "--markdown", "card.md")
    outcomes_of(wild_with_file, "answers.identity", words=words)
    lines = (wild_with_file / "card.md").read_text().splitlines()
    assert (
        f"- `interface.answers.identity`, unexpected pass: `{UNEXPECTED_PASS}`" in lines
    )


def test_a_certificate_takes_no_file_that_skips(wild_with_file):
    words = ("--certify", "--expected", "verify.toml")
    refused = verify("wild", *words, folder=wild_with_file)
    assert refused.returncode == 2
    assert "[skip]" in refused.stderr


def test_a_package_that_ends_its_process_is_told_as_accel_why_tells_it(install):
    folder = install(
        "crash", device_type="crash", vendor_import="crash_sdk", install_hint="x"
    )
    found = outcomes_of(folder, "answers.identity", backend="crash")
    outcome, why = found["answers.identity"]
    assert outcome == "not run"
    assert "importing crash_sdk (accel-crash 1.0)" in why
    assert "find the cause with accel doctor, or set ACCEL_BLOCK=crash" in why


@pytest.fixture
def remote(install, monkeypatch):
    """The folder of `Remote`, whose server is there."""
    folder = install("remote", accelerator="wild_devices:Remote")
    server = folder / "server"
    server.touch()
    monkeypatch.setenv("SIM_SERVER", str(server))
    return folder


def test_a_lost_connection_fails_one_check(remote):
    names = ("answers.host_memory", "answers.vendor_defaults")
    assert outcomes_of(remote, *names, backend="remote") == {
        "answers.host_memory": (
            "failed",
            "ConnectionResetError: the connection was reset",
        ),
        "answers.vendor_defaults": ("passed", ""),
    }


def test_a_lost_server_ends_the_run_and_is_named(remote):
    names = (
        "interface.answers.identity", "interface.answers.identifiers",
        "compute.arithmetic.claimed_dtypes_compute",
    )  # fmt: skip
    words = [word for name in names for word in ("--check", name)]
    done = verify("remote", "--json", *words, folder=remote)
    outcomes = [
        (row["outcome"], row["message"]) for row in json.loads(done.stdout)["checks"]
    ]
    error = "ConnectionRefusedError: no server at port 9720"
    process = "a process that creates one tensor on it exited with status 1"
    gone = ("failed", error)
    lost = (
        "not run",
        f"the device no longer responds: {process}; last words: {error}",
    )
    assert outcomes == [("passed", ""), gone, lost]


STARTING = ("traces.making_starts_no_device", "traces.making_keeps_the_environment")


def test_a_count_that_starts_the_device_fails_with_what_helps(install):
    folder = install("sim", accelerator="wild_devices:Starting")
    for outcome, message in outcomes_of(folder, *STARTING, backend="sim").values():
        assert outcome == "failed"
        assert message.endswith(
            "; if device_count() starts the device, count without the runtime in accel_probe"
        )


def test_a_count_in_accel_probe_starts_no_device(install):
    counts = hook(
        "accel_probe", "backend, others", "return ProbeResult(True, devices=1)"
    )
    folder = install("sim", accelerator="wild_devices:Starting", extra=counts)
    outcomes = outcomes_of(folder, *STARTING, backend="sim", status=0)
    assert [outcome for outcome, _ in outcomes.values()] == ["passed", "passed"]


@pytest.mark.parametrize(
    ("words", "more"),
    [
        (
            "Custom backend 'xpu' not implement 'torch.xpu.Stream'",
            "add Stream to torch.xpu",
        ),  # FSDP's
        (
            "rank 1: AttributeError: module 'torch.xpu' has no attribute 'Event'",
            "add Event to torch.xpu",
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


class Certificate:
    """What `accel verify cpu --certify` writes at level 0."""

    def __init__(self, folder):
        words = ("--level", "0", "--certify", "--junit", "j.xml", "--markdown", "c.md")
        self.stdout = verify("cpu", *words, folder=folder).succeeded().stdout
        self.junit_asked_for = folder / "j.xml"
        [self.folder] = (folder / "results").glob("*/cpu-*")
        self.report = json.loads((self.folder / "report.json").read_text())
        self.checks = len([check for check in checks() if check.level == 0])
        self.passed = self.report["counts"]["passed"]
        self.score = f"accel L0 · {self.passed}/{self.checks}"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return Certificate(tmp_path_factory.mktemp("certificate"))


def test_a_certificate_is_a_folder_of_six_files(certificate):
    assert sorted(path.name for path in certificate.folder.iterdir()) == [
        "badge.svg", "card.json", "card.md", "junit.xml", "product.toml", "report.json",
    ]  # fmt: skip


def test_the_score_is_in_the_report_the_badge_and_on_stdout(certificate):
    assert certificate.report["score"] == certificate.score
    assert certificate.score in (certificate.folder / "badge.svg").read_text()
    assert certificate.score in certificate.stdout


def test_the_score_is_in_the_product(certificate):
    product = tomllib.loads((certificate.folder / "product.toml").read_text())
    assert product["score"] == certificate.score


def test_the_junit_file_has_every_check(certificate):
    suite = ET.fromstring((certificate.folder / "junit.xml").read_text())
    assert len(suite) == certificate.checks
    assert int(suite.attrib["tests"]) == certificate.checks


def test_the_junit_file_that_is_asked_for_is_the_certificates(certificate):
    written = certificate.folder / "junit.xml"
    assert certificate.junit_asked_for.read_bytes() == written.read_bytes()


def test_the_card_has_a_row_of_the_level(certificate):
    card = (certificate.folder / "card.md").read_text()
    row = f"| 0 | {LEVELS[0]} | {certificate.passed} of {certificate.checks} |"
    assert row in card


def test_the_cards_document_has_the_keys_of_those_in_the_docs(certificate):
    card = json.loads((certificate.folder / "card.json").read_text())
    assert card.keys() == on_record("cpu").keys()


def test_checks_have_more_time_on_a_busy_machine(monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (12.0, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert scale_timeout(60) == 360


@pytest.mark.parametrize(
    ("of_a_framework", "reached"),
    [(Outcome.PASSED, 4), (Outcome.NOT_CLAIMED, 3), (Outcome.FAILED, 3)],
)
def test_a_level_of_which_nothing_passed_is_not_reached(of_a_framework, reached):
    """No framework is installed, or there is one device for two ranks: good, and no level to be shown."""
    below = [check for check in checks() if check.level < 4]
    *others, one = [check for check in checks() if check.level == 4]
    results = [Result(check, Outcome.PASSED) for check in below]
    results += [Result(check, Outcome.NOT_CLAIMED) for check in others]
    results.append(Result(one, of_a_framework))
    report = ConformanceReport("acme", "", "", "", "", "", "", 4, tuple(results), 1.0)
    assert report.reached == reached


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("cpu", "--certify", "--check", "declaration.hooks_fit"), 2, "Leave --check out"),
        (("cpu", "--junit", "no/x.xml"), 2, "there is no folder no. Create it first: mkdir -p no"),
        (("nobody",), 2, "accel verify nobody: no installed distribution declares nobody"),
        # Without the device a simulated one is named.
        (("mlu", "--check", "interface.answers.identity"), 1, "accel simulate mlu -- accel verify mlu"),
    ],
)  # fmt: skip
def test_what_cannot_run_says_why(tmp_path, words, status, message):
    if "mlu" in words:
        pytest.importorskip("torch")
        pytest.importorskip("accel_simulated")
    done = verify(*words, folder=tmp_path)
    assert done.returncode == status
    assert message in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '[skip]\n"compute.queues.events_tel_time" = "x"',
            "did you mean 'compute.queues.events_tell_time'?",
        ),
        ('[fails]\n"interface.answers.identity" = " "', "expected a sentence"),
        ('[fails]\n"interface.answers.identity" = 3', "expected a sentence"),
        ('[xfail]\n"interface.answers.identity" = "x"', "unknown section [xfail]"),
        ("skip = 3", "[skip] is not a table"),
        ("[skip", "is not valid TOML"),
        (
            '[skip]\n"declaration.hooks_fit"="a"\n[fails]\n"declaration.hooks_fit"="b"',
            "in both",
        ),
    ],
)
def test_a_file_that_cannot_be_followed_is_refused(tmp_path, text, words):
    file = tmp_path / "expected.toml"
    file.write_text(text)
    with pytest.raises(SettingError) as caught:
        read(file)
    assert words in str(caught.value)
    assert str(file) in str(caught.value)


def test_every_member_is_asked_by_a_check():
    """By its name in the checks' sources: a new member comes with one."""
    asked = set()
    for file in {check.group.file for check in checks()}:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                asked.add(node.attr)
            elif isinstance(node, ast.Constant):
                asked.add(node.value)
    members = {name for name in dir(Accelerator) if not name.startswith("_")}
    assert members - asked == set()


def test_there_are_99_checks_or_more():
    assert len(checks()) >= 99


def test_no_two_checks_have_one_name():
    assert len({check.name for check in checks()}) == len(checks())


def test_no_two_checks_have_one_node():
    assert len({check.node for check in checks()}) == len(checks())


def test_no_two_checks_have_one_name_of_a_test():
    """`AcceleratorTests` is all classes in one: a name of two would be one check."""
    assert len({check.node.partition("::")[2] for check in checks()}) == len(checks())


def test_every_check_says_why():
    assert [check.name for check in checks() if not check.why.endswith(".")] == []
