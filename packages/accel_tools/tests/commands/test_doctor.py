"""`accel doctor`: its page, its document, its exit status."""

import json
import os
import signal
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import jsonschema
import pytest
from accel_tests import children, layouts
from accel_tests.plugins import ACCELERATOR, NO_DEVICE, hook

import accel_tools.doctor
from accel_core.backend import Hardware, Visibility

SOURCES = Path(accel_tools.doctor.__file__).parent
SCHEMA = json.loads((SOURCES / "schema.json").read_text("utf-8"))
#: This topic alone: the others look at the real machine.
ONE = ("doctor", "--topic", "candidates")
HARDWARE = {
    "vendor_import": "vendor_npu",
    "hardware": Hardware("Ascend NPU", pci_ids=("ffff",)),
}
#: A vendor's package that fails in its own module, which its `__init__` wraps.
BROKEN = {
    "vendor_npu/__init__.py": "try:\n    from vendor_npu import runtime\nexcept Exception as error:\n"
    "    raise RuntimeError('failed to load') from error\n",
    "vendor_npu/runtime.py": "\nraise OSError('libhccl.so: cannot open shared object file')\n",
}


REGISTERS = """
import torch, types
def lost(): raise RuntimeError("no device")
def autoload():
    torch.foo = types.ModuleType("torch.foo")
    torch.foo.device_count = lambda: 0
    torch.accelerator.current = torch._C.private_use1 = "foo"
    torch.ones = lambda *_, **__: lost()
"""


@pytest.fixture
def broken_npu(accel):
    """npu, without a device, and with a vendor's package that does not import."""
    layouts._write(accel.world.site, BROKEN)
    accel.world.backend("npu", 990, **HARDWARE)
    return accel


def findings(document):
    """The findings of the one topic by their backend, those on files left out."""
    (topic,) = document["topics"]
    return {
        f["about"]: f
        for f in topic["findings"]
        if not f["code"].startswith("candidates.files")
    }


@pytest.fixture
def healthy(accel):
    """A usable npu, and mlu without a device, whose absence needs no repair."""
    accel.install("npu")
    accel.world.backend("mlu", 300, extra=NO_DEVICE)
    return accel


def test_the_page_of_a_healthy_machine_has_one_line_a_topic(healthy):
    done = healthy(*ONE).succeeded()
    assert done.stderr == ""
    first, _, *rest = done.stdout.splitlines()
    assert first == "npu is chosen, and nothing is wrong in: Backends."
    assert rest[:3] == ["✓  Backends", "", "All observations: `accel doctor --all`."]


def test_the_page_of_a_fault_ends_with_the_guide_to_devices_that_are_not_found(accel):
    accel.world.backend("npu", 990, vendor_import="no_such_module_npu")
    accel.world.backend("mlu", 980, extra="raise OSError('err 5')")
    last = accel(*ONE).stdout.splitlines()[-1]
    assert last.startswith("Why is my GPU not found? See ")
    assert "docs/howto/not-found.md" in last


def test_the_page_of_a_chosen_device_without_a_fault_has_no_guide(healthy):
    assert "GPU not found" not in healthy(*ONE).succeeded().stdout


def test_the_document_of_a_healthy_machine_is_ok(healthy):
    document = healthy.json(*ONE)
    assert document["level"] == "ok"
    assert document["exit_status"] == 0
    assert document["chosen"] == "npu"
    assert findings(document)["npu"]["what"] == "usable, 2 devices"
    assert findings(document)["mlu"]["what"] == "no device: nothing on the bus"


def test_what_the_chosen_device_computes_otherwise_is_told(accel):
    for name, priority in (("npu", 990), ("mlu", 980)):
        known = (("compute.numbers.nan_and_infinity", f"{name} loses NaN"),)
        accel.world.backend(name, priority, known_differences=known)
    first = "npu is chosen, and nothing is wrong in: Backends. Known difference: npu loses NaN.\n"
    assert accel(*ONE).stdout.startswith(first)


def test_a_package_that_counts_none_and_that_no_plugin_knows_is_a_warning(accel):
    """As torch_musa without its driver: https://github.com/MooreThreads/torch_musa/issues/50"""
    accel.world.module("torch_foo", REGISTERS)
    accel.world.distribution(
        "torch-foo", "1.0", {"torch.backends": {"foo": "torch_foo:autoload"}}
    )
    finding = findings(accel.json(*ONE, status=1))["generic"]
    assert finding["level"] == "warning"
    assert finding["what"].endswith(
        "torch-foo 1.0 registers 'foo' with torch, but counts no device"
    )
    accel.install("npu")
    assert accel(*ONE).returncode == 0


def test_a_vendors_package_without_its_device_is_a_warning_with_a_step(accel):
    """Case 08, with a plugin for the vendor: nothing said why the device was not used."""
    layouts._write(accel.world.site, {"vendor_npu/__init__.py": ""})
    accel.world.distribution("vendor-npu", "1.0")
    accel.world.backend("npu", 990, **HARDWARE)
    finding = findings(accel.json(*ONE, status=1))["npu"]
    step = "run on a machine that has an Ascend NPU, or pip uninstall vendor-npu"
    assert finding["level"] == "warning"
    assert finding["what"] == "no device: no Ascend NPU found"
    assert finding["step"] == step


@pytest.fixture
def broken_npu_beside_mlu(broken_npu):
    """The broken npu, which ranks first, and a usable mlu."""
    broken_npu.install("mlu", priority=10)
    return broken_npu


def test_a_broken_package_beside_a_working_choice_is_told_with_status_1(
    broken_npu_beside_mlu,
):
    done = broken_npu_beside_mlu(*ONE)
    assert done.returncode == 1
    assert done.stderr == ""
    failed = "vendor_npu failed: OSError: libhccl.so: cannot open shared object file"
    assert done.stdout.startswith(
        "mlu is chosen, and one problem was found: npu: vendor_npu failed.\n\n"
        f"!  Backends\n  !  npu: {failed}; and no "
    )


def test_the_document_has_the_root_cause_of_a_broken_package(broken_npu_beside_mlu):
    """Out of the child process that imported it, and out of the chain of exceptions."""
    finding = findings(broken_npu_beside_mlu.json(*ONE, status=1))["npu"]
    assert finding["level"] == "warning"
    assert finding["code"] == "candidates.no-device"
    assert (
        finding["facts"]["root cause"]
        == "OSError: libhccl.so: cannot open shared object file"
    )
    assert finding["facts"]["raised by"].endswith("vendor_npu/runtime.py, line 2")
    assert finding["facts"]["distribution"] == "accel-npu 1.0"


def test_with_a_pin_on_a_broken_package_nothing_can_be_chosen(broken_npu_beside_mlu):
    pinned = broken_npu_beside_mlu(*ONE, DS_ACCELERATOR="npu")
    assert pinned.returncode == 1
    assert pinned.stdout.startswith(
        "No backend can be chosen, and one problem was found: npu: vendor_npu failed."
    )


def test_one_cause_is_one_finding_with_one_remedy(broken_npu):
    """Issue 25: the real torch_npu without CANN had three findings, and two remedies that contradict."""
    accel = broken_npu
    accel.world.distribution(
        "vendor-npu", "2.0", {"torch.backends": {"npu": "vendor_npu:autoload"}}
    )
    needs = "CheckResult('warning', 'vendor-npu 2.0 needs the toolkit, which is not installed', 'install it')"
    extra = (
        "\nfrom accel_core import Check, CheckResult\n"
        + hook("accel_explain", "backend, error", "return 'install it'")
        + hook(
            "accel_checks",
            "backend",
            f"return [Check('toolkit', 'The toolkit', lambda: {needs})]",
        )
    )
    accel.world.backend("npu", 990, extra=extra, **HARDWARE)
    topics = [
        word
        for topic in ("candidates", "import-hooks", "checks")
        for word in ("--topic", topic)
    ]
    document = accel.json(
        "doctor", *topics, status=1, TORCH_DEVICE_BACKEND_AUTOLOAD="1"
    )
    [finding] = [
        f
        for topic in document["topics"]
        for f in topic["findings"]
        if f["level"] != "ok"
    ]
    what = "vendor-npu 2.0 needs the toolkit, which is not installed, and this machine has no Ascend NPU"
    assert finding["level"] == "error"
    assert finding["what"] == what
    assert (
        finding["step"]
        == "pip uninstall vendor-npu. (On a machine with the device, do this instead: install it.)"
    )
    assert "libhccl.so" in finding["facts"]["error"]
    assert (
        "fails when torch loads it"
        in finding["facts"]["also, from import-hooks.torch-fails"]
    )
    assert document["verdict"].endswith(f"one problem was found: npu: {what}.")


def test_two_plugins_of_one_name_are_one_finding(accel):
    for distribution in ("accel-npu", "other-npu"):
        accel.install("npu", distribution=distribution)
    [finding] = [
        f
        for f in accel.json(*ONE, status=1)["topics"][0]["findings"]
        if f["level"] != "ok"
    ]
    assert finding["what"] == "accel-npu 1.5 and other-npu 1.5 declare npu"
    assert finding["step"] == "export DS_ACCELERATOR=npu@accel-npu, or npu@other-npu"


def test_a_pin_whose_devices_are_hidden_is_one_finding(accel):
    """Issue 25: of a device that its runtime alone counts there were two findings, with two remedies."""
    accel.world.module("none_device", ACCELERATOR.format(count="return 0"))
    accel.world.backend(
        "npu",
        accelerator="none_device:Simulated",
        visibility=Visibility(variables=("NPU_VISIBLE_DEVICES",)),
    )
    topics = ("--topic", "candidates", "--topic", "visible-devices")
    hidden = {"DS_ACCELERATOR": "npu", "NPU_VISIBLE_DEVICES": "99"}
    document = accel.json("doctor", *topics, status=1, **hidden)
    [finding] = [
        f
        for topic in document["topics"]
        for f in topic["findings"]
        if f["level"] != "ok"
    ]
    assert finding["what"].startswith(
        "DS_ACCELERATOR='npu' selects a backend that has no usable device: "
    )
    assert (
        finding["step"] == "unset NPU_VISIBLE_DEVICES, or set it to devices that exist"
    )


@pytest.fixture
def broken_torch(accel):
    """A torch that cannot be imported, beside a plugin that needs it."""
    layouts._write(
        accel.world.site, {"torch/__init__.py": "raise OSError('libcudart.so.12')\n"}
    )
    accel.install("npu")
    return accel


def test_the_page_names_once_what_fails_for_torch(broken_torch):
    page = broken_torch(*ONE).stdout
    assert page.count("libcudart.so.12") == 1, page
    assert page.count("✗") == 2  # the topic and its one finding


def test_not_even_the_cpu_is_used_where_torch_cannot_be_imported(accel):
    layouts._write(accel.world.site, {"torch/__init__.py": "raise OSError('no')\n"})
    first = accel(*ONE).stdout.splitlines()[0]
    assert first.startswith("No backend can be used, and one problem was found: torch")


def test_the_document_says_that_torch_cannot_be_imported(broken_torch):
    accel = broken_torch
    finding = findings(accel.json(*ONE, status=1))[""]
    assert finding["level"] == "error"
    assert finding["code"] == "candidates.torch"
    assert "cannot be imported: OSError: libcudart.so.12" in finding["what"]
    assert finding["facts"]["raised by"].endswith("torch/__init__.py, line 1")


def test_a_name_narrows_the_findings_to_that_backend(accel):
    accel.install("npu")
    accel.install(
        "off", "ProbeResult(False, 'off', 'switch it on', devices=0)", priority=995
    )
    document = accel.json(*ONE, "off")
    assert findings(document).keys() == {"off", ""}
    assert document["verdict"].startswith(
        "off (accel-off 1.5) is not usable (no device), npu is chosen, and"
    )


def test_a_name_that_nobody_declares_is_a_finding_with_status_2(accel):
    accel.install("npu")
    unknown = findings(accel.json(*ONE, "npu", "mlu@nowhere", status=2))
    assert unknown.keys() == {"npu", "mlu@nowhere", ""}
    assert (
        unknown["mlu@nowhere"]["what"]
        == "no installed distribution declares mlu from nowhere"
    )


def test_a_word_that_can_be_no_name_is_refused(accel):
    wrong = accel("doctor", "@")
    assert wrong.returncode == 2
    assert "expected a backend name, or name@distribution" in wrong.stderr


def test_without_torch_nothing_can_be_chosen(accel):
    done = accel(*ONE, torch=False)
    assert done.returncode == 1
    assert done.stdout.startswith(
        "No backend can be chosen, and one problem was found: torch is not installed.\n"
    )
    assert "     accel setup\n" in done.stdout


def test_without_torch_the_computation_gets_no_check_mark(accel):
    done = accel("doctor", "--topic", "candidates", "--topic", "compute", torch=False)
    assert "one problem was found: torch is not installed.\n" in done.stdout
    assert "✗  Computation  (the problem is reported under" in done.stdout


def test_a_torch_that_the_system_refuses_is_to_be_upgraded(accel):
    """Case 31: glibc 2.41 refuses libraries that need an executable stack."""
    error = "libtorch_cpu.so: cannot enable executable stack as shared object requires"
    layouts._write(
        accel.world.site, {"torch/__init__.py": f"raise ImportError({error!r})\n"}
    )
    finding = findings(accel.json(*ONE, status=1))[""]
    assert finding["step"].startswith("pip install --upgrade torch: this system ")


def test_a_torch_that_ends_its_process_is_one_finding(accel):
    """The probe of each backend ends with it: the vendor's package is not to be installed again."""
    layouts._write(accel.world.site, {"torch/__init__.py": "import os\nos._exit(3)\n"})
    accel.install("npu")
    page = accel(*ONE).stdout
    assert page.count("✗") == 2  # the topic and its one finding
    assert "find the cause with accel doctor" not in page


def test_of_a_torch_that_takes_too_long_nothing_is_known(accel):
    layouts._write(
        accel.world.site, {"torch/__init__.py": "__import__('time').sleep(60)\n"}
    )
    finding = findings(accel.json(*ONE, "--timeout", "0.5", status=1))[""]
    assert finding["level"] == "warning"
    assert finding["step"] == "allow more time: --timeout 300"


@pytest.mark.parametrize("width", [60, 80, 160])
def test_pages_fill_the_width_and_lose_no_word(broken_npu, width):
    done = broken_npu(*ONE, "--all", COLUMNS=str(width), FORCE_COLOR="")
    assert done.returncode == 1
    assert max(map(len, done.stdout.splitlines())) <= width
    words = " ".join(done.stdout.split())
    assert "OSError: libhccl.so: cannot open shared object file" in words
    assert "\x1b" not in done.stdout


def test_a_warning_has_a_colour_where_colours_are_forced(broken_npu):
    assert "\x1b[33m!" in broken_npu(*ONE, FORCE_COLOR="1").stdout


def test_signs_are_ascii_where_the_encoding_is(broken_npu):
    page = broken_npu(*ONE, "--all", PYTHONIOENCODING="ascii").stdout
    assert "!  Backends" in page
    assert "+  cpu: usable" in page


def test_signs_are_unicode_where_the_encoding_has_them(broken_npu):
    page = broken_npu(*ONE, "--all", PYTHONIOENCODING="utf-8").stdout
    assert "✓  cpu: usable" in page


def open_objects(schema, at="$"):
    """Objects of the schema that would let anything through."""
    if isinstance(schema, dict):
        if (
            schema.get("type") == "object"
            and schema.get("additionalProperties") is not False
        ):
            yield at
        for name, inner in schema.items():
            yield from open_objects(inner, f"{at}.{name}")
    elif isinstance(schema, list):
        for inner in schema:
            yield from open_objects(inner, at)


def test_only_the_facts_of_a_finding_have_free_names_in_the_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert list(open_objects(SCHEMA)) == ["$.$defs.finding.properties.facts"]


def test_the_document_of_a_refused_setting_follows_the_schema(accel):
    document = accel.json("doctor", status=2, ACCEL_STRICT="perhaps")
    jsonschema.Draft202012Validator(SCHEMA).validate(document)


def test_a_document_follows_the_schema_which_is_no_looser(broken_npu):
    """Every key is required, and no other is taken: in the document, in a topic, in a finding."""
    validator = jsonschema.Draft202012Validator(SCHEMA)
    document = broken_npu.json("doctor", status=1)
    validator.validate(document)
    topic = next(t for t in document["topics"] if t["findings"])
    for part in (document, topic, topic["findings"][0]):
        for name in list(part):
            value = part.pop(name)
            assert not validator.is_valid(document), name
            part[name] = value
        part["another"] = 1
        assert not validator.is_valid(document)
        del part["another"]
    assert validator.is_valid(document)


def test_a_plugin_that_ends_whoever_imports_it_ends_no_topic(accel):
    accel.install("npu")
    accel.world.plugin("deadly", "import os\nos._exit(7)\n")
    document = accel.json("doctor", status=1)
    assert [topic["failed"] for topic in document["topics"]] == [""] * len(
        document["topics"]
    )
    found = {
        f["about"]: f
        for f in document["topics"][0]["findings"]
        if ".files" not in f["code"]
    }
    assert found["deadly"]["code"] == "candidates.crashed"
    assert found["npu"]["what"] == "usable, 2 devices"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signal")
def test_an_interrupt_ends_it_at_once_with_all_its_children(accel, tmp_path):
    for name in ("npu", "mlu", "sdaa"):
        asleep = f"open({str(tmp_path / name)!r}, 'w').write(str(__import__('os').getpid()))\n"
        probe = hook("accel_probe", "backend", f"{asleep}__import__('time').sleep(60)")
        accel.world.backend(name, 990, extra=probe)
    # Whoever runs the tests in the background of a shell has the signal ignored, for all that they start.
    heard = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    path = [*accel.world.path, children.SIMULATED]
    command = children.program(f"{heard}{children.accel('doctor')}", path, strict=False)
    started = children.start(command, children.clean_environment())
    limit = time.monotonic() + 60
    while not list(tmp_path.glob("[nms]*[au]")):  # the first sleeps
        assert time.monotonic() < limit
        time.sleep(0.05)
    before = time.monotonic()
    os.kill(started.pid, signal.SIGINT)
    done = children.finish(started, 30)
    assert time.monotonic() - before < 10
    assert done.returncode == -signal.SIGINT
    assert done.stdout == ""
    pids = [int(file.read_text() or 0) for file in tmp_path.glob("[nms]*[au]")]
    while any(
        pid and Path(f"/proc/{pid}").exists() for pid in pids
    ):  # they end after us
        assert time.monotonic() - before < 10
        time.sleep(0.02)


def test_without_pip_in_this_environment_the_page_says_how_to_get_it(accel):
    """Environments of uv have none, and `pip` in the shell would change another environment."""
    accel.world.backend("npu", 990, extra="raise OSError('err 5')")
    page = accel(*ONE).stdout
    has_pip = find_spec("pip") is not None
    assert ("This environment has no pip." in page) == (not has_pip)
    if not has_pip:
        assert f"run `{sys.executable} -m ensurepip`" in " ".join(page.split())
