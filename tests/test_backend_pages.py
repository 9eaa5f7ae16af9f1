"""tools/backend_pages.py: the pages and the table follow the declarations and the notes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from types import ModuleType

import pytest
from accel_testing.tools import TREE, load

_TOOL = load("backend_pages")


@pytest.fixture
def tool() -> ModuleType:
    return _TOOL


@pytest.fixture(autouse=True)
def _plugins(monkeypatch):
    for path in [TREE / "src", *TREE.glob("plugins/*/src")]:
        monkeypatch.syspath_prepend(str(path))


@pytest.fixture
def root(tool, tmp_path):
    """A tree with the notes and a table, whose pages have been written."""
    shutil.copytree(TREE / "docs/backends/notes", tmp_path / "docs/backends/notes")
    (tmp_path / tool.TABLE).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / tool.TABLE).write_text(f"# before\n\n{tool.BEGIN}\n{tool.END}\n\n# after\n")
    assert tool.main(["--write"], tmp_path) == 0
    return tmp_path


def test_the_table_has_every_backend_in_deepspeeds_order(tool, root):
    page = (root / tool.TABLE).read_text()
    rows = [line.split("|")[1:4] for line in page.splitlines() if line.startswith("| `")]
    assert [(row[0].strip(" `"), int(row[2])) for row in rows] == [
        ("xpu.external", 900), ("xpu", 800), ("xpu", 790), ("npu", 700), ("sdaa", 600), ("mps", 500),
        ("hpu", 400), ("mlu", 300), ("supa", 250), ("klxpu", 225), ("cuda", 200), ("cuda", 190),
        ("generic", 100), ("cpu", 0),
    ]  # fmt: skip
    assert page.startswith("# before\n")
    assert page.endswith("\n# after\n")


def test_a_page_holds_the_declaration_and_the_notes(root):
    text = (root / "docs/backends/npu.md").read_text()
    for piece in ("`torch_npu`", "`hccl`", "`19e5:d802`", "ascending indices", 'install "accel-npu[vendor]"'):
        assert piece in text
    assert (root / "docs/backends/notes/npu.md").read_text().strip().endswith(text.strip()[-200:])


def test_a_fresh_tree_passes_the_check(tool, root):
    assert tool.main(["--check"], root) == 0


def test_a_changed_declaration_fails_the_check(tool, root, monkeypatch, capsys):
    changed = [
        s._replace(backend=replace(s.backend, communication_backend="nccl2")) if s.page == "cuda" else s
        for s in tool.shipped()
    ]
    monkeypatch.setattr(tool, "shipped", lambda: changed)
    assert tool.main(["--check"], root) == 1
    out = capsys.readouterr().out
    assert [line.partition(":")[0] for line in out.splitlines()] == [
        "docs/backends/cuda.md",
        "docs/reference/backends.md",
    ]


@pytest.mark.parametrize("name", ["reference/backends.md", "backends/cuda.md", "backends/notes/mlu.md"])
def test_an_edit_by_hand_fails_the_check_and_is_left_alone(tool, root, name, capsys):
    name = f"docs/{name}"
    file = root / name
    edited = file.read_text().replace("`mlu`", "`mlv`").replace("`nccl`", "`mccl`").replace("cncl", "dncl")
    edited = edited.replace("Read from", "Taken from")
    file.write_text(edited)
    assert tool.main(["--check"], root) == 1
    assert f"{name.replace('notes/', '')}: out of date, run ./dev docs --write" in capsys.readouterr().out
    assert file.read_text() == edited


def test_what_people_must_write_or_delete_is_named(tool, root, capsys):
    backends = root / "docs/backends"
    (backends / "notes/hpu.md").unlink()
    (backends / "tpu.md").write_text("left over\n")
    (root / tool.TABLE).write_text("no markers\n")
    assert tool.main(["--check"], root) == 1
    out = capsys.readouterr().out
    assert "docs/backends/notes/hpu.md: lacks ## Detection, ## Variables" in out
    assert "docs/backends/tpu.md: no backend has this name, delete it" in out
    assert "docs/reference/backends.md: lacks the lines <!-- backends" in out


@pytest.mark.slow
def test_neither_torch_nor_a_vendor_is_imported():
    paths = [str(TREE / "src"), str(TREE / "tools"), *map(str, TREE.glob("plugins/*/src"))]
    code = (
        f"import runpy, sys; sys.path[:0] = {paths!r}; tool = runpy.run_path({_TOOL.__file__!r})\n"
        "assert len(tool['shipped']()) == 14\n"
        "vendors = {'torch', 'torch_npu', 'habana_frameworks', 'intel_extension_for_pytorch'}\n"
        "assert not vendors & set(sys.modules), vendors & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
