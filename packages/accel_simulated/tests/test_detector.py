"""The detector without torch: whose place it is, what a process leaves behind, the reports, bad input."""

import json
import os
import re
import signal
import sys
from pathlib import Path
from types import FrameType

import pytest
from accel_tests import layouts
from accel_tests.plugins import declaring
from click.shell_completion import ShellComplete
from click.testing import CliRunner

import accel_core
from accel_core import Accelerator, discover, packages
from accel_core.cli import accel
from accel_core.hardware import vendors
from accel_simulated import VENDORS, declared, device, faults, imports
from accel_simulated.detector import advice, attribution, command, formats, names
from accel_simulated.detector.attribution import Owner
from accel_simulated.detector.log import MAX_PLACES, NOT_RECORDED, Log
from accel_simulated.detector.merge import Place, Report, merge
from accel_simulated.request import MAX_DEVICES, parse_request
from accel_simulated.vendors import DEVICES
from accel_testing.commands import simulate

ROOT = Path(__file__).parents[3]
PYTHON = Path(os.__file__).parent
SITE = "/venv/lib/python3.12/site-packages"
NONE = 'no counterpart: guard it with a condition such as `if acc.name == "cuda":`'


def _called_from(file, name, inner, **spec):
    """What `inner` gives when it is called by code of that file and module."""
    code = compile("found = inner()", file, "exec")
    values = {"__name__": name, "inner": inner, **spec}
    exec(code, values)
    return values["found"]


@pytest.mark.parametrize(
    ("file", "module", "whose"),
    [
        ("/home/me/train.py", "__main__", Owner.USER),
        (f"{SITE}/accelerate/state.py", "accelerate.state", Owner.USER),
        # Named as a package of torch's, or as Python's own: the user's all the same.
        ("/home/me/torch.py", "train", Owner.USER),
        ("/home/me/cuda/test.py", "test", Owner.USER),
        (f"{PYTHON}/site-packages/lib/a.py", "lib.a", Owner.USER),
        (f"{PYTHON}/contextlib.py", "contextlib", Owner.FORWARDER),
        ("<string>", "__main__", Owner.FORWARDER),
        (f"{SITE}/_pytest/monkeypatch.py", "_pytest.monkeypatch", Owner.FORWARDER),
        (f"{SITE}/pytest_mock/plugin.py", "pytest_mock.plugin", Owner.FORWARDER),
        # As execnet runs it.
        (f"{SITE}/xdist/remote.py", "__channelexec__", Owner.FORWARDER),
        (f"{SITE}/torch/nn/modules/module.py", "torch.nn.modules.module", Owner.VENDOR),
        ("/src/torch/torch/cuda/__init__.py", "torch.cuda", Owner.VENDOR),
        (f"{SITE}/torch_npu/npu/utils.py", "torch_npu.npu.utils", Owner.VENDOR),
        ("/src/accel_cuda/accelerator.py", "accel_cuda.accelerator", Owner.VENDOR),
        (str(ROOT / "src/accel_core/current.py"), "accel_core.current", Owner.VENDOR),
    ],
)  # fmt: skip
def test_whose_file_it_is(file, module, whose):
    assert (
        _called_from(file, module, lambda: attribution.find_owner(sys._getframe(1)))
        == whose
    )


def test_the_nearest_of_others():
    def place():
        return attribution.nearest_user_frame(sys._getframe(1))

    def through(file, name):
        return _called_from(
            "/home/me/train.py", "train", lambda: _called_from(file, name, place)
        )

    found = through(f"{PYTHON}/functools.py", "functools")
    assert isinstance(found, FrameType)
    # This test's own lambda stands between.
    assert found.f_code.co_filename == __file__
    assert through("/x/site-packages/torch/random.py", "torch.random") is None


def test_names_are_the_vendors():
    """Those that accel-simulated plays, and those that plugins declare."""
    for vendor in VENDORS.values():
        kind = vendor.alias_of or vendor.name
        if kind not in ("acme", "plain"):
            assert set(vendor.visible) <= set(names.TYPES[kind].variables), vendor.name
            assert {vendor.collective} - {""} <= set(names.TYPES[kind].collectives), (
                vendor.name
            )
        package = vendor.package.partition(".")[0]
        assert package in attribution._VENDOR_PACKAGES, package
    declared = [
        backend
        for backend in (found.backend for found in discover())
        if backend.device_type in names.TYPES
    ]
    assert len(declared) > 8
    for backend in declared:
        # Cambricon's runtime reads CUDA's where its own are not set.
        variables = set(backend.visibility.variables) - (
            {"CUDA_VISIBLE_DEVICES"} if backend.name == "mlu" else set()
        )
        assert variables <= set(names.TYPES[backend.device_type].variables), (
            backend.name
        )


def test_what_two_share_is_not_for_another():
    of_npu = names.names_to_record("npu")
    assert "npu" not in of_npu
    assert of_npu["hpu"].collectives == ()
    assert "hccl" in names.names_to_record("acme")["hpu"].collectives


def test_cuda_is_recorded_on_a_simulated_cuda_too():
    """A program that is written for it alone comes to its end there only."""
    assert names.names_to_record("cuda")["cuda"] == names.TYPES["cuda"]
    assert "cuda" in names.names_to_record("xpu")
    assert "xpu" not in names.names_to_record("xpu")


@pytest.mark.parametrize(
    ("source", "is_recorded"),
    [
        ('device = "cuda"', True),
        ("device = f'cuda:{rank}'", True),
        ("device = tensor.device.type", False),
        ("torch.cuda.synchronize()", False),
    ],
)
def test_the_devices_own_name_counts_only_where_the_file_spells_it(
    source, is_recorded, tmp_path
):
    """`acc.device_name()` returns it on every device."""
    file = tmp_path / "program.py"
    file.write_text(f"{source}\n")
    log = Log(str(tmp_path), simulated_type="cuda")
    counter = _called_from(
        str(file),
        "program",
        lambda: log.record(sys._getframe(1), "device", '"cuda"', "cuda", "cuda"),
    )
    assert (counter != NOT_RECORDED) is is_recorded


def test_advice_names_what_there_is():
    known = json.loads((ROOT / "tools" / "torch_accelerator.json").read_text())["since"]
    said = [*advice._BY_NAME.values(), *advice._BY_KIND.values()]
    said += [
        advice.replacement("call", f"torch.cuda.{name}()", "cuda")
        for name in advice._IN_TORCH_ACCELERATOR
    ]
    assert len(said) > 40
    for text in said:
        ours, torchs = (
            re.findall(r"\bacc\.(\w+)", text),
            re.findall(r"\btorch\.accelerator\.(\w+)", text),
        )
        assert all(hasattr(Accelerator, name) for name in ours), text
        assert all(name in known for name in torchs), text


@pytest.mark.parametrize(
    ("kind", "what", "said"),
    [
        ("call", "torch.cuda.synchronize()", "`acc.synchronize()`; or `torch.accelerator.synchronize()`"),
        ("call", "torch.cuda.memory_summary()", "`acc.memory_summary()`"),
        ("call", "torch.cuda.nccl.version()", "`acc.communication_backend_version()`"),
        ("call", "torch.cuda._lazy_call()", "`acc.lazy_call(f)`"),
        ("call", "torch.cuda._lazy_init()", NONE),
        ("type", "torch.cuda.FloatTensor", "`acc.FloatTensor`"),
        ("type", "torch.cuda.BoolTensor", "`torch.tensor(data, dtype=..., device=acc.device())`"),
        ("ask", ".is_cuda", "`acc.on_accelerator(tensor)`"),
        ("ask", "torch.cuda.device_count()", "`acc.device_count()`; or `torch.accelerator.device_count()`"),
        ("device", '"cuda:1"', advice._BY_KIND["device"]),
        ("device", "ProfilerActivity.CUDA", "`profile()`: torch then records every available activity"),
        ("precision", "torch.cuda.amp.GradScaler()", "`acc.grad_scaler()`"),
        ("precision", 'custom_fwd("cuda")', "`torch.amp.custom_fwd(device_type=acc.device_name())`"),
    ],
)  # fmt: skip
def test_advice(kind, what, said):
    assert advice.replacement(kind, what, "cuda") == said


def test_what_the_page_replaces_has_a_counterpart_in_the_report():
    page = (ROOT / "docs/howto/from-torch-cuda.md").read_text("utf-8")
    calls = re.findall(
        r"`(?:with )?(torch\.cuda\.[\w.]+\()[^|]*\| [^|]*`.*?\bacc\.", page
    )
    assert len(calls) > 15
    for call in calls:
        assert advice.replacement("call", f"{call})", "cuda") != NONE, call


def test_what_a_process_leaves_behind(tmp_path):
    """Whole, though it is killed; what a killed one wrote by half is left out; a full table says so."""
    log = Log(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    log.record(sys._getframe(), "call", "torch.cuda.before()", "cuda")
    child = os.fork()
    if not child:
        for number in range(3):
            for _ in range(number + 1):
                log.record(sys._getframe(), "call", f"torch.cuda.f{number}()", "cuda")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    counter = log.record(sys._getframe(), "call", "torch.cuda.f2()", "cuda")
    log.record_error(counter, "ValueError: first")
    log.record_error(counter, "ValueError: second")
    for number in range(MAX_PLACES):
        log.record(sys._getframe(), "call", f"{number}", "cuda")
    (tmp_path / "torn.jsonl").write_text('{"pid": 1}\n{"place": 0, "fi')
    (tmp_path / "torn.counts").write_bytes(b"")

    report = merge(tmp_path, Path(__file__).parent, ["x"], "acme:2", 0)
    # The torn file lists nothing.
    assert report.processes == 2
    assert report.notes == [
        f"a process has more than {MAX_PLACES} places; further places are missing"
    ]
    assert [
        place.times for place in report.places if place.what == "torch.cuda.before()"
    ] == [1]
    found = {
        (place.what, place.line): place for place in report.places if ".f" in place.what
    }
    assert sorted((place.what, place.times) for place in found.values()) == [
        ("torch.cuda.f0()", 1), ("torch.cuda.f1()", 2), ("torch.cuda.f2()", 1), ("torch.cuda.f2()", 3),
    ]  # fmt: skip
    assert {place.file for place in found.values()} == {Path(__file__).name}
    assert [place.raised for place in found.values() if place.raised] == [
        "ValueError: first"
    ]
    assert all("log.record(" in place.text for place in found.values())
    assert (
        len(report.places) == MAX_PLACES + 3
    )  # two of the child's are its own, and the full table has the rest


def test_a_folder_that_is_gone(tmp_path):
    """As when a daemon outlives the command: it goes on."""
    log = Log(str(tmp_path / "gone"))
    for _ in range(2):
        counter = log.record(sys._getframe(), "call", "torch.cuda.f()", "cuda")
        assert counter == NOT_RECORDED
    log.add_note("nothing")


def test_variables_by_name_alone(child, tmp_path):
    """Not by who goes through all; and one's own are not watched."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, unittest.mock\n"
        "dict(os.environ), {**os.environ}, os.environ | {}, list(os.environ.values()), os.environ.copy()\n"
        "os.environ == {}, 'CUDA_VISIBLE_DEVICES' in os.environ\n"
        "os.environ.setdefault('CUDA_VISIBLE_DEVICES', '1')\n"
        "os.environ.pop('CUDA_VISIBLE_DEVICES')\n"
        "assert os.getenv('CUDA_VISIBLE_DEVICES', 'none') == 'none'\n"
        "os.environ.update({**os.environ, 'HIP_VISIBLE_DEVICES': '0'})\n"
        "with unittest.mock.patch.dict(os.environ, {'ROCR_VISIBLE_DEVICES': '1'}): pass\n"
        "os.environ['MLU_VISIBLE_DEVICES'] = os.environ['HOME'] = '0'\n"
        "assert os.environ.copy()['MLU_VISIBLE_DEVICES'] == '0' == os.environ['HOME']\n"
    )
    variables = {
        "ACCEL_SIMULATE": "mlu",
        "ACCEL_SIMULATE_RECORD": str(tmp_path),
        "CUDA_VISIBLE_DEVICES": "0",
    }
    child(f"import runpy; runpy.run_path({str(script)!r})", variables)
    found = merge(tmp_path, tmp_path, [], "mlu", 0).places
    assert sorted((p.line, p.what.partition(" ")[2], p.times) for p in found) == [
        (3, "read", 1), (4, "read", 2), (5, "read", 1), (5, "written", 1), (6, "read", 1),
        (8, "written", 1),
    ]  # fmt: skip


def _report(status=1, allocated=None):
    """A report of two places and a question, in a file of the project and in one of a package."""
    places = [
        Place(
            "src/a b.py", 3, "call", "torch.cuda.f()", "cuda", "", "f(`x`) | g()", 4, "ValueError: <x|y>_z"
        ),
        Place("src/a b.py", 9, "ask", "torch.cuda.is_available()", "cuda", "", "", 2),
        Place(
            "accelerate/state.py", 1, "collective", 'init_process_group("nccl")', "cuda", "accelerate", "", 1
        ),
    ]  # fmt: skip
    return Report(
        ["pytest", "-k", "a b"], "acme:2", status, 2, allocated, ["a note"], places
    )


def _first_sentences(report):
    """What a Markdown report says below its title."""
    return formats.as_markdown(report).splitlines()[2]


FAILED = "The program failed (exit status 1): code that did not run is not listed."


@pytest.mark.parametrize(
    ("status", "allocated", "outcome"),
    [
        (1, None, FAILED),
        (1, 0, f"{FAILED} Nothing was allocated on acme:2 (simulated)."),
        (1, 4096, f"{FAILED} Up to 4.0 KiB were allocated on acme:2 (simulated)."),
        (0, None, "The program ended without an error."),
        (0, 0, "The program ran on the CPU. Nothing was allocated on acme:2 (simulated)."),
        (0, 512, "The program ran on the CPU. Only 512 bytes were allocated on acme:2 (simulated)."),
        (0, 4096, "The program ran on acme:2 (simulated). Up to 4.0 KiB were allocated there."),
    ],
)  # fmt: skip
def test_a_report_begins_with_what_happened(status, allocated, outcome):
    assert _first_sentences(_report(status, allocated)) == outcome


@pytest.mark.parametrize(
    ("status", "allocated", "meaning"),
    [
        (0, 4096, "Nothing outside torch was written for one vendor's device."),
        (0, 0, "No place was recorded; code for a device did not run."),
        (0, None, "No place was recorded; code for a device did not run."),
        (1, 4096, "No place was recorded before the program failed."),
    ],
)
def test_a_report_without_places_says_what_that_means(status, allocated, meaning):
    empty = Report(["true"], "acme:2", status, allocated=allocated)
    assert formats.as_markdown(empty).rstrip().endswith(meaning)


@pytest.mark.parametrize(
    ("status", "allocated", "simulated", "has_step"),
    [(1, 4096, "acme:2", True), (0, 0, "acme:2", True), (0, 4096, "acme:2", False), (1, 0, "cuda:2", False)],
)  # fmt: skip
def test_a_program_for_cuda_that_does_not_come_to_its_end_elsewhere_is_sent_to_cuda(
    status, allocated, simulated, has_step
):
    report = _report(status, allocated)
    report.simulated = simulated
    step = "`accel simulate --report cuda.md cuda -- pytest -k 'a b'`"
    assert (step in formats.as_markdown(report)) is has_step


def test_markdown():
    markdown = formats.as_markdown(_report())
    assert (
        "2 places in 2 files, and 1 place in 1 file that only check for a device."
        in markdown
    )
    assert "Not recorded: a note." in markdown
    assert r"| `` f(`x`) \| g() `` |" in markdown
    assert r"| ValueError: \<x\|y\>\_z |" in markdown
    assert "| (this project) | 1 | 4 |" in markdown
    headings = [line for line in markdown.splitlines() if line.startswith("##")]
    assert headings == [
        "### src/a b.py", "### accelerate/state.py", "## Device checks", "### src/a b.py",
    ]  # fmt: skip


def test_json():
    document = json.loads(formats.as_json(_report(1, 4096)))
    expected = {
        "schema": 1, "command": ["pytest", "-k", "a b"], "simulated": "acme:2", "status": 1,
        "complete": False, "allocated": 4096, "processes": 2, "notes": ["a note"],
    }  # fmt: skip
    assert {key: document[key] for key in expected} == expected
    assert document["outcome"].startswith(FAILED)
    places = [(p["file"], p["package"], p["times"]) for p in document["assumptions"]]
    assert places == [("src/a b.py", "", 4), ("accelerate/state.py", "accelerate", 1)]
    assert [place["line"] for place in document["asks"]] == [9]


def test_sarif_has_what_code_scanning_requires():
    """SARIF 2.1.0 and GitHub's code scanning: the project's own files alone, by addresses."""
    sarif = json.loads(formats.as_sarif(_report()))
    assert sarif["version"] == "2.1.0"
    (run,) = sarif["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert run["tool"]["driver"]["name"]
    assert [rule["id"] for rule in rules] == ["vendor-call", "vendor-ask"]
    texts = ("shortDescription", "fullDescription", "help")
    assert all(rule[key]["text"] for rule in rules for key in texts)
    expected = [("warning", 3), ("note", 9)]
    for result, (level, line) in zip(run["results"], expected, strict=True):
        (location,) = (each["physicalLocation"] for each in result["locations"])
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert (result["level"], result["message"]["text"][-1]) == (level, ".")
        assert location["artifactLocation"]["uri"] == "src/a%20b.py"
        assert location["region"]["startLine"] == line


@pytest.mark.parametrize("status", [0, 1])
def test_sarif_begins_with_what_happened(status):
    (run,) = json.loads(formats.as_sarif(_report(status)))["runs"]
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is (status == 0)
    messages = [
        each["message"]["text"] for each in invocation["toolExecutionNotifications"]
    ]
    assert messages == [_report(status).outcome, "Not recorded: a note."]


def test_the_last_line_of_a_run_says_that_the_program_failed(
    tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nothing.so").touch()
    library = tmp_path / "nothing.so"
    monkeypatch.setattr(command.device_strings, "build", lambda: library)
    words = [sys.executable, "-c", "import no_such_module"]
    environ = {**os.environ, "ACCEL_SIMULATE": "acme:2"}
    assert command.run(words, environ, ["a.md"], words) == 1
    assert FAILED in Path("a.md").read_text()
    expected = (
        f"accel simulate: {FAILED} 0 places, 0 that only check for a device: a.md"
    )
    assert capfd.readouterr().err.splitlines()[-1] == expected


@pytest.mark.parametrize(
    ("report", "said"),
    [
        ("cuda.txt", r"'cuda.txt': the file's suffix .*\.md, \.json, \.sarif.* Write --report cuda\.md"),
        ("cuda", r"must be one of"),
        ("no/such/a.md", r"'no/such/a.md': the file cannot be written: No such file or directory\. Choose"),
        ("folder.md", r"the file cannot be written: Is a directory"),
    ],
)  # fmt: skip
def test_reports_that_cannot_be_written(report, said, tmp_path, monkeypatch):
    """Said before the command runs; and nothing is left."""
    monkeypatch.chdir(tmp_path)
    Path("folder.md").mkdir()
    words = [
        "simulate",
        "--report",
        "good.md",
        "--report",
        report,
        "acme",
        "--",
        "touch",
        "ran",
    ]
    done = CliRunner().invoke(accel, words)
    assert done.exit_code == 2
    assert re.search(said, done.stderr), done.stderr
    assert os.listdir() == ["folder.md"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["acme"], "Missing a command"),
        (["--list"], "--list or --build, which run no command"),
    ],
)
def test_reports_need_a_command(words, said):
    done = CliRunner().invoke(accel, ["simulate", "--report", "cuda.md", *words])
    assert (done.exit_code, said in done.stderr) == (2, True)
    assert not Path("cuda.md").exists()


def test_two_that_change_one_module(tmp_path, monkeypatch):
    """As the simulated cuda and the detector both do with torch.distributed."""
    (tmp_path / "changed_twice.py").write_text("said = []\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = list(sys.meta_path)
    for name in ("first", "second"):
        imports.on_import(
            "changed_twice",
            before=lambda name=name: monkeypatch.setitem(os.environ, name, name),
            after=lambda module, name=name: module.said.append(os.environ[name]),
        )
    import changed_twice

    assert changed_twice.said == ["first", "second"]
    assert sys.meta_path == before


# ---------------------------------------------------------------------------- asking
# Asking for a simulated device, and not asking: what a process has of it before torch is imported.


#: A torch that says that it was loaded: none of these tests gets so far.
TORCH = "raise AssertionError('torch was loaded')\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(TORCH)
    return str(tmp_path)


def test_installed_and_not_asked_for_nothing_of_it_is_there(child):
    code = (
        "import json, sys; import accel_core; accel_core.Backend\n"
        "print(json.dumps([[name for name in sys.modules if name.startswith('accel_simulated')],"
        " [path for path in sys.path if 'runtimes' in path], len(sys.meta_path)]))"
    )
    modules, folders, finders = json.loads(child(code, {"ACCEL_SIMULATE": None}))
    assert (modules, folders) == ([], [])
    asked = child(code, {"ACCEL_SIMULATE": "acme"})
    modules, folders, more = json.loads(asked)
    assert "accel_simulated.at_start" in modules
    assert not [name for name in modules if "detector" in name]
    assert [Path(path).name for path in folders] == ["acme"]
    assert more > finders


def test_what_cannot_be_followed_is_said_by_each_import_of_torch(child, folder):
    """And by nothing before: Python, pip and editors start as ever."""
    code = (
        "for _ in range(2):\n"
        "    try: import torch\n"
        "    except ValueError as error: print(type(error).__name__, error)"
    )
    said = child(code, {"ACCEL_SIMULATE": "cudda:2", "PYTHONPATH": folder}).splitlines()
    assert said[0] == said[1]
    assert said[0].startswith(
        "SettingError ACCEL_SIMULATE='cudda:2': 'cudda' is not simulated; expected NAME"
    )
    assert said[0].endswith("Did you mean cuda:2?")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "tpu",
            "'tpu' is not simulated; expected NAME or NAME:COUNT, such as acme:2; the names are",
        ),
        ("acme,cuda", "'acme,cuda' is not simulated"),
        (":2", "'' is not simulated"),
        (
            "acme:0",
            "'0' is not a valid number of devices; expected a number from 1 to 64. Write acme:2.",
        ),
        ("acme:", "'' is not a valid number"),
        ("acme:-1", "'-1' is not a valid number"),
        ("acme:two", "'two' is not a valid number"),
        ("acme:²", "'²' is not a valid number"),
        (f"acme:{MAX_DEVICES + 1}", "'65' is not a valid number"),
        (
            "mps:2",
            "expected 1, because torch supports only one device of this type. Write mps:1.",
        ),
    ],
)
def test_bad_values(text, problem):
    with pytest.raises(accel_core.SettingError) as caught:
        parse_request(text)
    assert str(caught.value).startswith(f"ACCEL_SIMULATE={text!r}: ")
    assert problem in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "text",
    ["oom@0", "oom=3", "slow", "slow=2.", "count@3", "driver@2", "fire", "oom@1;lost"],
)
def test_bad_faults(text):
    with pytest.raises(
        accel_core.SettingError,
        match=r"is not a fault; expected oom@N, .* such as oom@10,slow=",
    ):
        faults.parse_faults(text)


@pytest.mark.parametrize("text", ["0", "64,x", "64,", "-1", "1048577", "9" * 30, "٣"])
def test_bad_memories(text, monkeypatch):
    monkeypatch.setenv("ACCEL_SIMULATE_MEMORY_MB", text)
    with pytest.raises(accel_core.SettingError) as caught:
        device._read_memory_sizes()
    assert repr(text) in str(caught.value)
    assert "1024,64" in str(caught.value)


def test_a_neighbour_whose_metadata_is_broken_is_passed_over(tmp_path, monkeypatch):
    layouts.dist_info(tmp_path, "aaa", "1.0", {layouts.GROUP: {"x": "y"}})
    (next(tmp_path.glob("aaa*.dist-info")) / "entry_points.txt").write_bytes(
        b"[accel.backends]\nx = \xff\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert declared.find("acme") is None
    assert "accel_cuda" in attribution._plugin_packages.__wrapped__()


def test_good_faults():
    assert faults.parse_faults(" oom@10, slow=2.5,COUNT=1@20,,hang") == {
        "oom": (10, 0), "slow": (1, 2500), "count": (20, 1), "hang": (1, 0),
    }  # fmt: skip


def test_good_values():
    assert [str(parse_request(text)) for text in ("acme", " ACME : 3 ", "mps", f"cuda:{MAX_DEVICES}")] == [
        "acme:2", "acme:3", "mps:1", f"cuda:{MAX_DEVICES}",
    ]  # fmt: skip


def test_asked_for_another_when_one_is_simulated(child):
    code = (
        "import accel_core, os; os.environ['ACCEL_SIMULATE'] = 'mlu:2'\n"
        "try: accel_core.get_accelerator()\n"
        "except ValueError as error: print(error)"
    )
    said = child(code, {"ACCEL_SIMULATE": "acme"})
    assert said.startswith(
        "ACCEL_SIMULATE='mlu:2' was set after this process had started to simulate acme:2. Start an"
    )


def test_a_vendors_package_that_comes_without_being_asked_for():
    with pytest.raises(
        accel_core.SettingError,
        match="torch was imported without ACCEL_SIMULATE=acme",
    ):
        device.load("acme")


def test_a_torch_that_is_built_for_the_real_device(child, folder):
    Path(folder, "torch", "version.py").write_text(
        "__version__ = '2.13.0'\ncuda = '12.8'\n"
    )
    code = "try: import torch\nexcept RuntimeError as error: print(type(error).__name__, error)"
    said = child(code, {"ACCEL_SIMULATE": "cuda", "PYTHONPATH": folder})
    assert said.startswith(
        "BackendConflictError ACCEL_SIMULATE='cuda:2': the installed torch is built"
    )
    assert "for CUDA 12.8" in said
    assert "Simulate acme, or install" in said


@pytest.mark.parametrize(
    ("name", "value", "count"),
    [
        ("npu", "0,1", 2), ("npu", "1", 1), ("npu", "1,0", 0), ("npu", "0, 1", 1), ("npu", "0,,1", 1),
        ("npu", "0,5", 1), ("npu", "", 0), ("mlu", "1,0", 2), ("mlu", "1, 1", 1), ("mlu", "5", 0),
        ("mlu", "0,5,1", 2), ("cuda", "1,0", 2), ("cuda", "0,5,1", 1), ("cuda", "-1,0", 0),
    ],
)  # fmt: skip
def test_the_vendors_variable_hides_devices(name, value, count, monkeypatch):
    """CANN takes ascending integers alone; accel-npu's tests hold the real torch_npu to the same."""
    vendor = DEVICES[name]
    monkeypatch.setenv(vendor.visible[0], value)
    assert device._count_visible_devices(vendor, 2) == count


def test_the_vendors_own_package_is_installed_as_well(child, folder):
    """Said by the import of torch, by that of the package, and by whatever chooses."""
    installed = Path(folder, "site-packages")
    (installed / "torch_npu").mkdir(parents=True)
    code = (
        f"import sys; sys.path.append({str(installed)!r}); import accel_core\n"
        "for start in ('import torch', 'import torch_npu', 'accel_core.get_accelerator()'):\n"
        "    try: exec(start)\n"
        "    except RuntimeError as error: print(type(error).__name__, error)"
    )
    said = child(code, {"ACCEL_SIMULATE": "npu", "PYTHONPATH": folder}).splitlines()
    assert len(said) == 3, said
    assert len(set(said)) == 1, said
    assert said[0].startswith(
        "BackendConflictError ACCEL_SIMULATE='npu:2': the vendor's real torch_npu is installed in "
        f"{installed}, "
    )
    assert "Simulate in an environment without it" in said[0]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (
            ["acmee:2", "--", "python"],
            2,
            "the device 'acmee:2': 'acmee' is not simulated",
        ),
        (["acme:0", "python"], 2, "'0' is not a valid number of devices"),
        (
            ["acme", "--", "no-such-command", "-x"],
            1,
            "no-such-command: command not found on PATH",
        ),
        (["acme"], 2, "Missing a command, such as: accel simulate acme -- pytest"),
        ([], 2, "Missing a device and a command"),
        (["--build", "acme", "dpu"], 2, "'dpu' is not simulated"),
        (
            ["--output", "x", "acme", "true"],
            2,
            "--output requires --build: accel simulate --build",
        ),
        (["acme", "--output", "x"], 1, "--output: command not found"),
    ],
)
def test_the_commands_errors(words, status, said):
    done = CliRunner().invoke(accel, ["simulate", *words])
    assert done.exit_code == status, done.output
    assert said in done.stderr
    assert done.stdout == ""


def test_a_script_that_lies_elsewhere_is_named_as_its_module(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    for name, module in {
        "pytest": "pytest",
        "torchrun": "torch[.]distributed[.]run",
        "none": "none",
    }.items():
        with pytest.raises(accel_core.LaunchError, match=rf"python -m {module}\.$"):
            simulate._find_program(name)


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["simulate"], ["npu", "neuron"]),
        (["simulate", "--build"], ["npu", "neuron"]),
        (["simulate", "--build", "acme"], ["npu", "neuron"]),
        (["simulate", "acme"], ["n"]),  # the command: a file
    ],
)
def test_completion(words, completed):
    found = ShellComplete(accel, {}, "accel", "_ACCEL_COMPLETE").get_completions(
        words, "n"
    )
    assert [item.value for item in found] == completed


def test_the_command_without_the_package(monkeypatch):
    everything = packages.entry_points
    monkeypatch.setattr(
        packages,
        "entry_points",
        lambda group: everything(group) if "commands" in group else (),
    )
    done = CliRunner().invoke(accel, ["simulate", "acme", "true"])
    step = vendors.install_command("accel-simulated")
    assert (done.exit_code, done.stderr) == (
        1,
        f"Error: accel simulate needs accel-simulated, which is not installed. Next step: {step}\n",
    )


def test_what_is_no_device_of_a_plugins_own_is_not_taken_from_its_declaration(
    child, tmp_path
):
    own = (
        "priority=1, torch_integration=TorchIntegration(private_use1=True), "
        "visibility=Visibility(variables=('OWN',))"
    )
    modules = {
        "accel_zing": declaring(
            "name='zing', device_type='zing', vendor_import='torch_zing', priority=1",
            f"name='zang', device_type='zang', {own}",
        ),
        "accel_acme": declaring(
            f"name='acme', device_type='acme', vendor_import='torch_acme', {own}"
        ),
        "accel_plain": declaring(
            f"name='plain', device_type='plain', vendor_import='plain_sdk', {own}"
        ),
    }
    groups = {"accel.backends": {name.removeprefix("accel_"): name for name in modules}}
    plugin = layouts.dist_info(tmp_path, "accel-zing", "1.0", groups, modules)
    code = (
        "from accel_simulated.declared import VARIABLE, find, from_environment\n"
        "devices = [find(n) for n in ('zing', 'zang', 'nobody', 'acme', 'plain')]\n"
        "print(*[device and device.to_json() for device in devices], sep='|')\n"
        "print([from_environment({VARIABLE: text}) for text in ('', 'nonsense', '[1]', '{}')])"
    )
    found, read_back = child(code, {"PYTHONPATH": str(plugin)}).splitlines()
    *none, acme, plain = found.split("|")
    assert (none, read_back) == (["None"] * 3, str([None] * 4))
    assert json.loads(plain) == [
        "plain",
        "plain",
        "plain_sdk",
        "plain_simulated",
        ["OWN"],
        {},
    ]
    assert json.loads(acme)[2:5:2] == [
        "torch_acme",
        ["OWN"],
    ]  # what hides a device only its plugin says
