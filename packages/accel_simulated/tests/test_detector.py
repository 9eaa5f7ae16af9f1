"""The detector without torch: whose place it is, what a process leaves behind, the reports, bad input."""

import json
import os
import re
import signal
import sys
from pathlib import Path
from types import FrameType

import pytest
from click.testing import CliRunner

from accel_core import Accelerator, discover
from accel_core.cli import accel
from accel_simulated import VENDORS, imports
from accel_simulated.detector import advice, blame, formats, names
from accel_simulated.detector.gather import Place, Report, gather
from accel_simulated.detector.log import PLACES, Log

ROOT = Path(__file__).parents[3]
PYTHON = Path(os.__file__).parent
SITE = "/venv/lib/python3.12/site-packages"
NONE = 'no counterpart: keep it behind a question, such as `if acc.name == "cuda":`'


def _called_from(file, name, inner, **spec):
    """What `inner` gives when it is called by code of that file and module."""
    code = compile("found = inner()", file, "exec")
    values = {"__name__": name, "inner": inner, **spec}
    exec(code, values)
    return values["found"]


@pytest.mark.parametrize(
    ("file", "module", "whose"),
    [
        ("/home/me/train.py", "__main__", blame.USERS),
        (f"{SITE}/accelerate/state.py", "accelerate.state", blame.USERS),
        # Named as a package of torch's, or as Python's own: the user's all the same.
        ("/home/me/torch.py", "train", blame.USERS),
        ("/home/me/cuda/test.py", "test", blame.USERS),
        (f"{PYTHON}/site-packages/lib/a.py", "lib.a", blame.USERS),
        (f"{PYTHON}/contextlib.py", "contextlib", blame.PASSED),
        ("<string>", "__main__", blame.PASSED),
        (f"{SITE}/_pytest/monkeypatch.py", "_pytest.monkeypatch", blame.PASSED),
        (f"{SITE}/pytest_mock/plugin.py", "pytest_mock.plugin", blame.PASSED),
        # As execnet runs it.
        (f"{SITE}/xdist/remote.py", "__channelexec__", blame.PASSED),
        (f"{SITE}/torch/nn/modules/module.py", "torch.nn.modules.module", blame.THEIRS),
        ("/src/torch/torch/cuda/__init__.py", "torch.cuda", blame.THEIRS),
        (f"{SITE}/torch_npu/npu/utils.py", "torch_npu.npu.utils", blame.THEIRS),
        ("/src/accel_cuda/accelerator.py", "accel_cuda.accelerator", blame.THEIRS),
        (str(ROOT / "src/accel_core/current.py"), "accel_core.current", blame.THEIRS),
    ],
)  # fmt: skip
def test_whose_file_it_is(file, module, whose):
    assert _called_from(file, module, lambda: blame.whose(sys._getframe(1))) == whose


def test_the_nearest_of_others():
    def place():
        return blame.place(sys._getframe(1))

    def through(file, name):
        return _called_from("/home/me/train.py", "train", lambda: _called_from(file, name, place))

    found = through(f"{PYTHON}/functools.py", "functools")
    assert isinstance(found, FrameType)
    # This test's own lambda stands between.
    assert found.f_code.co_filename == __file__
    assert through("/x/site-packages/torch/random.py", "torch.random") is None


def test_names_are_the_vendors():
    """Those that accel-simulated plays, and those that plugins declare."""
    for vendor in VENDORS.values():
        kind = vendor.plays or vendor.name
        if kind not in ("acme", "plain"):
            assert set(vendor.visible) <= set(names.TYPES[kind].variables), vendor.name
            assert {vendor.collective} - {""} <= set(names.TYPES[kind].collectives), vendor.name
        package = vendor.package.partition(".")[0]
        assert package in blame._PACKAGES, package
    declared = [
        backend for backend in (found.backend for found in discover()) if backend.device_type in names.TYPES
    ]
    assert len(declared) > 8
    for backend in declared:
        # Cambricon's runtime reads CUDA's where its own are not set.
        variables = set(backend.visibility.variables) - (
            {"CUDA_VISIBLE_DEVICES"} if backend.name == "mlu" else set()
        )
        assert variables <= set(names.TYPES[backend.device_type].variables), backend.name


def test_what_two_share_is_not_for_another():
    of_npu = names.foreign("npu")
    assert "npu" not in of_npu
    assert of_npu["hpu"].collectives == ()
    assert "hccl" in names.foreign("acme")["hpu"].collectives


def test_advice_names_what_there_is():
    known = json.loads((ROOT / "tools" / "torch_accelerator.json").read_text())["since"]
    said = [*advice._NAMED.values(), *advice._OF_KIND.values()]
    said += [advice.instead("call", f"torch.cuda.{name}()", "cuda") for name in advice._TORCHS]
    assert len(said) > 40
    for text in said:
        ours, torchs = re.findall(r"\bacc\.(\w+)", text), re.findall(r"\btorch\.accelerator\.(\w+)", text)
        assert all(hasattr(Accelerator, name) for name in ours), text
        assert all(name in known for name in torchs), text


@pytest.mark.parametrize(
    ("kind", "what", "said"),
    [
        ("call", "torch.cuda.synchronize()", "`acc.synchronize()`; or `torch.accelerator.synchronize()`"),
        ("call", "torch.cuda.memory_summary()", "`acc.memory_summary()`"),
        ("call", "torch.cuda.nccl.version()", NONE),
        ("call", "torch.cuda._lazy_call()", NONE),
        ("type", "torch.cuda.FloatTensor", "`acc.FloatTensor`"),
        ("type", "torch.cuda.BoolTensor", "`torch.tensor(data, dtype=..., device=acc.device())`"),
        ("ask", ".is_cuda", "`acc.on_accelerator(tensor)`"),
        ("ask", "torch.cuda.device_count()", "`acc.device_count()`; or `torch.accelerator.device_count()`"),
        ("device", '"cuda:1"', advice._OF_KIND["device"]),
        ("precision", "torch.cuda.amp.GradScaler()", "`acc.grad_scaler()`"),
    ],
)  # fmt: skip
def test_advice(kind, what, said):
    assert advice.instead(kind, what, "cuda") == said


def test_what_a_process_leaves_behind(tmp_path):
    """Whole, though it is killed; what a killed one wrote by half is left out; a full table says so."""
    log = Log(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    log.seen(sys._getframe(), "call", "torch.cuda.before()", "cuda")
    child = os.fork()
    if not child:
        for number in range(3):
            for _ in range(number + 1):
                log.seen(sys._getframe(), "call", f"torch.cuda.f{number}()", "cuda")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    counter = log.seen(sys._getframe(), "call", "torch.cuda.f2()", "cuda")
    log.raised(counter, "ValueError: first")
    log.raised(counter, "ValueError: second")
    for number in range(PLACES):
        log.seen(sys._getframe(), "call", f"{number}", "cuda")
    (tmp_path / "torn.jsonl").write_text('{"pid": 1}\n{"place": 0, "fi')
    (tmp_path / "torn.counts").write_bytes(b"")

    report = gather(tmp_path, Path(__file__).parent, ["x"], "acme:2", 0)
    assert report.processes == 3
    assert report.notes == [f"a process has more than {PLACES} places: the others are not here"]
    assert [place.times for place in report.places if place.what == "torch.cuda.before()"] == [1]
    found = {(place.what, place.line): place for place in report.places if ".f" in place.what}
    assert sorted((place.what, place.times) for place in found.values()) == [
        ("torch.cuda.f0()", 1), ("torch.cuda.f1()", 2), ("torch.cuda.f2()", 1), ("torch.cuda.f2()", 3),
    ]  # fmt: skip
    assert {place.file for place in found.values()} == {Path(__file__).name}
    assert [place.raised for place in found.values() if place.raised] == ["ValueError: first"]
    assert all("log.seen(" in place.text for place in found.values())
    assert len(report.places) == PLACES + 3  # two of the child's are its own, and the full table has the rest


def test_a_folder_that_is_gone(tmp_path):
    """As when a daemon outlives the command: it goes on."""
    log = Log(str(tmp_path / "gone"))
    assert [log.seen(sys._getframe(), "call", "torch.cuda.f()", "cuda") for _ in range(2)] == [-1, -1]
    log.note("nothing")


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
    variables = {"ACCEL_SIMULATE": "mlu", "ACCEL_SIMULATE_RECORD": str(tmp_path), "CUDA_VISIBLE_DEVICES": "0"}
    child(f"import runpy; runpy.run_path({str(script)!r})", variables)
    found = gather(tmp_path, tmp_path, [], "mlu", 0).places
    assert sorted((p.line, p.what.partition(" ")[2], p.times) for p in found) == [
        (3, "read", 1), (4, "read", 2), (5, "read", 1), (5, "written", 1), (6, "read", 1),
        (8, "written", 1),
    ]  # fmt: skip


def _report():
    made = [
        Place(
            "src/a b.py", 3, "call", "torch.cuda.f()", "cuda", "", "f(`x`) | g()", 4, "ValueError: <x|y>_z"
        ),
        Place("src/a b.py", 9, "ask", "torch.cuda.is_available()", "cuda", "", "", 2),
        Place(
            "accelerate/state.py", 1, "collective", 'init_process_group("nccl")', "cuda", "accelerate", "", 1
        ),
    ]
    return Report(["pytest", "-k", "a b"], "acme:2", 1, 2, ["a note"], made)


def test_formats():
    report = _report()
    markdown = formats.as_markdown(report)
    assert "2 places in 2 files, and 1 place in 1 file that only ask." in markdown
    assert "Not seen: a note." in markdown
    assert r"| ``f(`x`) \| g()`` |".replace("``f(", "`` f(").replace(")`` |", ") `` |") in markdown
    assert r"| ValueError: \<x\|y\>\_z |" in markdown
    assert "| (this project) | 1 | 4 |" in markdown
    assert (
        markdown.index("### src/a b.py") < markdown.index("### accelerate/state.py") < markdown.index("## Q")
    )
    empty = formats.as_markdown(Report(["true"], "acme:2", 0))
    assert empty.rstrip().endswith("Nothing outside torch was written for another vendor's device.")

    told = json.loads(formats.as_json(report))
    assert (told["schema"], told["command"], told["processes"]) == (1, ["pytest", "-k", "a b"], 2)
    assert [(p["file"], p["package"], p["times"]) for p in told["assumptions"]] == [
        ("src/a b.py", "", 4), ("accelerate/state.py", "accelerate", 1),
    ]  # fmt: skip

    # What SARIF 2.1.0 and GitHub's code scanning ask for: the project's own files alone, by addresses.
    sarif = json.loads(formats.as_sarif(report))
    assert sarif["version"] == "2.1.0"
    (run,) = sarif["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert run["tool"]["driver"]["name"]
    assert [rule["id"] for rule in rules] == ["vendor-call", "vendor-ask"]
    assert all(
        rule[text]["text"] for rule in rules for text in ("shortDescription", "fullDescription", "help")
    )
    for result, level, line in zip(run["results"], ("warning", "note"), (3, 9), strict=True):
        (location,) = (each["physicalLocation"] for each in result["locations"])
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert (result["level"], result["message"]["text"][-1]) == (level, ".")
        assert location["artifactLocation"]["uri"] == "src/a%20b.py"
        assert location["region"]["startLine"] == line
    assert run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"] == "Not seen: a note."


@pytest.mark.parametrize(
    ("report", "said"),
    [
        ("cuda.txt", r"'cuda.txt': its ending .* none of \.md, \.json, \.sarif\. Write --report cuda\.md"),
        ("cuda", r"its ending says how it is written"),
        ("no/such/a.md", r"'no/such/a.md': it cannot be written: No such file or directory\. Give a file"),
        ("folder.md", r"it cannot be written: Is a directory"),
    ],
)  # fmt: skip
def test_reports_that_cannot_be_written(report, said, tmp_path, monkeypatch):
    """Said before the command runs; and nothing is left."""
    monkeypatch.chdir(tmp_path)
    Path("folder.md").mkdir()
    words = ["simulate", "--report", "good.md", "--report", report, "acme", "--", "touch", "ran"]
    done = CliRunner().invoke(accel, words)
    assert done.exit_code == 2
    assert re.search(said, done.stderr), done.stderr
    assert os.listdir() == ["folder.md"]


@pytest.mark.parametrize(
    ("words", "said"), [(["acme"], "Missing a command"), (["--list"], "--list and --build run none")]
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
        imports.change(
            "changed_twice",
            before=lambda name=name: monkeypatch.setitem(os.environ, name, name),
            after=lambda module, name=name: module.said.append(os.environ[name]),
        )
    import changed_twice

    assert changed_twice.said == ["first", "second"]
    assert sys.meta_path == before
