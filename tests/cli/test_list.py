"""`accel list`, as a user runs it."""

from __future__ import annotations

import json

import pytest
from accel_tests.plugins import hook


def line_of(text, name):
    """The row of the backend `name`, in the form of a pipe: one line."""
    return next(line for line in text.splitlines() if line[2:].startswith(f"{name} "))


def test_lists_a_third_party_backend_with_all_that_is_known(accel):
    accel.install("npu", priority=995, distribution="someone-npu", version="3.1")
    done = accel("list", "--all")
    assert done.returncode == 0, done.stderr
    row = line_of(done.stdout, "npu")
    assert row.split() == ["*", "npu", "3.1", "someone-npu", "995", "json", "usable", "2", "devices"]
    assert "* npu would be chosen: the highest-ranking usable one." in done.stdout
    assert line_of(done.stdout, "cpu")


def test_json_holds_every_backend_in_rank_order(accel, backend):
    accel.install("aaa", priority=5)
    accel.install("zzz", priority=995)
    document = accel.json("list")
    assert [b["name"] for b in document["backends"]] == ["zzz", "generic", "aaa", "cpu"]
    assert [b["marked"] for b in document["backends"]] == [True, False, False, False]
    assert (document["chosen"], document["how"]) == ("zzz", "ranked")
    assert document["torch"] == "2.99.0+simulated"


def test_the_cpu_is_what_is_left(accel):
    document = accel.json("list")
    assert (document["chosen"], document["how"]) == ("cpu", "fallback")


BRINGS = """
import torch, types
torch.foo = types.ModuleType("torch.foo")
torch.foo.device_count = lambda: 3
torch.accelerator.current = "foo"
"""


def test_a_package_that_announces_nothing_is_imported_first_for_every_command(accel, backend):
    """Issue 23: nothing but the package's import brings its device, and nobody knew of it."""
    accel.world.module("torch_foo", BRINGS)
    assert accel.json("list")["chosen"] == "cpu"
    document = accel.json("--import", "torch_foo", "list")
    assert (document["chosen"], backend(document, "generic")["devices"]) == ("generic", 3)
    for words in (["why", "generic"], ["info"], ["doctor", "--topic", "candidates"]):
        done = accel("--import", "torch_foo", *words)
        assert "generic" in done.stdout.partition("\n")[0], done.stdout + done.stderr
    wrong = accel("--import", "torch_fooo", "list")
    assert wrong.returncode == 2
    assert "no module 'torch_fooo' is installed here" in wrong.stderr


BROKEN = {
    "raises": ("raise RuntimeError('libhccl.so: cannot open')", "broken", "libhccl.so: cannot open"),
    "imports": ("import no_such_module_of_ours", "broken", "no_such_module_of_ours"),
    "exits": ("import sys; sys.exit(3)", "broken", "tried to end the process with 3"),
    "empty": ("", "invalid", "declares no backend"),
}


def test_broken_plugins_are_rows_and_hide_no_other(accel, backend):
    for name, (body, *_) in BROKEN.items():
        accel.world.plugin(name, body)
    accel.install("good")
    accel.install("dying", "__import__('os').abort()", priority=995)
    accel.install("hanging", "__import__('time').sleep(60)", priority=994)
    document = accel.json("list", "--timeout", "3", status=1)  # a loaded machine needs over one to fail
    for name, (_, status, reason) in BROKEN.items():
        bad = backend(document, name)
        assert bad["status"] == status
        assert reason in bad["reason"]
        assert bad["hint"]
    assert backend(document, "good")["status"] == "usable"
    assert backend(document, "dying")["status"] == "crashed"
    assert "SIGABRT" in backend(document, "dying")["reason"]
    assert backend(document, "hanging")["status"] == "timed_out"
    assert "no answer within 3 s" in backend(document, "hanging")["reason"]


LOUD = """
import atexit, os, sys
print("python says hello")
os.write(1, b"C says hello\\n")
os.system("echo a shell says hello")
atexit.register(print, "python says goodbye")
atexit.register(os.write, 1, b"C says goodbye\\n")
sys.__stdout__.write("past the redirection\\n")
"""


@pytest.mark.parametrize("command", ["list", "info"])
def test_what_plugins_print_goes_to_stderr(accel, command):
    accel.install_card()
    module = accel.world.site / "accel_card.py"
    module.write_text(LOUD + module.read_text())
    done = accel(command, "--json")
    document = json.loads(done.stdout)
    assert "card" in (document.get("chosen"), document.get("name"))
    for words in ("python says hello", "C says hello", "a shell says hello", "past the"):
        assert words in done.stderr
    assert "goodbye" not in done.stderr  # nor do exit handlers run, which may hang


def test_two_distributions_with_one_name_are_a_conflict(accel, backend):
    accel.install("npu", distribution="first-npu")
    accel.install("npu", distribution="second-npu")
    document = accel.json("list", "--no-probe")
    first = backend(document, "npu", "first-npu")
    assert first["status"] == "conflict"
    assert "second-npu" in first["reason"]
    assert document["chosen"] != "npu"


def test_a_reason_in_a_pipe_is_one_line_and_whole(accel):
    long = "the driver is too old " * 12
    accel.install("npu", f"ProbeResult(False, {long!r} + chr(10) + 'second line', 'update it')")
    row = line_of(accel("list").stdout, "npu")
    assert " ".join(long.split()) + " second line; hint: update it" in row


@pytest.mark.parametrize("columns", [40, 200])
def test_a_page_is_as_wide_as_asked_and_whole(accel, columns):
    name, distribution = "a_backend_with_a_very_long_name", "its-distribution-is-long-too"
    accel.install(name, f"ProbeResult(False, {'reason ' * 30!r}, 'the last word')", distribution=distribution)
    done = accel("list", "--all", COLUMNS=str(columns))
    assert max(map(len, done.stdout.splitlines())) <= columns
    text = " ".join(done.stdout.split())
    assert text.count("reason") == 30
    assert "the last word" in text
    # A name that is too long is folded, not cut: its letters are in its column.
    if columns > 40:
        lines = done.stdout.splitlines()
        column = slice(lines[0].index("VERSION"))
        assert "".join(line[column].strip() for line in lines[1:]).startswith(name)


def test_escape_codes_in_a_reason_do_not_reach_the_terminal(accel):
    accel.install("npu", r"ProbeResult(False, 'red \x1b[31malert\x07')")
    assert r"red \x1b[31malert\x07" in accel("list").stdout


def test_nor_do_they_reach_a_program_that_prints_our_errors(accel):
    """Nor line ends, with which a plugin would write lines in our name."""
    evil = "red \x1b]0;title\x07\nnpu: usable"
    safe = r"red \x1b]0;title\x07 npu: usable"
    accel.install("npu", f"ProbeResult(False, {evil!r}, {evil!r})")
    code = """
import json, os, warnings, accel_core
from accel_core import OpBuildError
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    accel_core.get_accelerator()
texts = [str(caught[0].message), str(accel_core.selection())]
accel_core.set_accelerator(None)
os.environ["DS_ACCELERATOR"] = "npu"
for act in (lambda: accel_core.accelerator("npu"), lambda: accel_core.get_accelerator()):
    try:
        act()
    except accel_core.AccelError as error:
        texts.append(str(error))
texts.append(str(OpBuildError("a\\x1b[31m log\\nof lines")))
print(json.dumps(texts))
"""
    *texts, log = accel.world.child(code, strict=False).answer
    assert len(texts) >= 3
    for text in texts:
        assert safe in text
        assert "\x1b" not in text
    assert log == r"a\x1b[31m log" + "\nof lines"


def test_what_the_encoding_lacks_is_written_as_escapes(accel, backend):
    accel.install("npu", r"ProbeResult(False, 'driver \u9a71')")
    assert r"driver \u9a71" in accel("list", process=True, PYTHONIOENCODING="ascii").stdout
    assert backend(accel.json("list", PYTHONIOENCODING="ascii"), "npu")["reason"] == "driver \u9a71"


def test_no_probe_asks_no_plugin(accel, backend):
    accel.install("npu", "1 / 0")
    document = accel.json("list", "--no-probe")
    assert backend(document, "npu")["status"] == "not_probed"
    assert document["chosen"] is None
    assert "Not probed" in accel("list", "--no-probe").stdout


PINS = {
    " NPU@Accel_Npu ": "* pinned by DS_ACCELERATOR=' NPU@Accel_Npu '; `accel why`",
    "gone,off,npu": "* preferred by DS_ACCELERATOR='gone,off,npu'",
    "off": "which cannot be honoured",
    "gone": "DS_ACCELERATOR='gone' names no backend that could be chosen",
}


def test_a_note_says_what_a_pin_did(accel):
    accel.install("top", priority=999)
    accel.install("npu", priority=1)
    accel.install("off", "ProbeResult(False, 'switched off', stands_aside=True)")
    for pin, note in PINS.items():
        assert note in accel("list", DS_ACCELERATOR=pin).stdout


def test_nothing_usable_is_said(accel):
    assert "Nothing is usable; `accel why` says more." in accel("list", ACCEL_ALLOW="nothing").stdout


def test_without_torch_it_lists_all_the_same_and_says_what_to_do(accel, backend):
    accel.install("npu")
    document = accel.json("list", torch=False)
    assert document["torch"] is None
    assert backend(document, "cpu")["status"] == "not_installed"
    assert backend(document, "npu")["distribution"] == "accel-npu"
    done = accel("list", torch=False)
    assert done.returncode == 0
    assert "torch is not installed, so no backend can be used: " in done.stdout


@pytest.mark.parametrize("arguments", [["list"], ["list", "--no-probe"], ["why", "npu"]], ids=" ".join)
def test_this_process_imports_neither_torch_nor_a_vendor(accel, arguments):
    accel.world.module("vendor_of_ours", "")
    accel.world.backend("npu", 990, vendor_import="vendor_of_ours")
    done = accel(*arguments, watched=frozenset({"torch", "vendor_of_ours"}))
    assert done.stderr.endswith("loaded: []")


def test_the_probing_child_does_import_them(accel, backend):
    """Or else the test above would prove nothing."""
    accel.world.module("vendor_of_ours", "raise OSError('it was imported')")
    accel.world.backend(
        "npu", 990, vendor_import="vendor_of_ours", extra=hook("accel_explain", "error", "return 'h'")
    )
    found = backend(accel.json("list"), "npu")
    assert "it was imported" in found["reason"]
    assert found["hint"] == "h"


def test_a_name_is_for_why(accel):
    done = accel("list", "npu")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("Error: accel list takes no name. For one backend: accel why npu\n")
