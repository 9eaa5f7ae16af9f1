"""tools/backend_pages.py: every backend in rank order, and what people must write or delete is named."""

from __future__ import annotations

import shutil

import pytest
from accel_tests.tools import TREE, load

tool = load("backend_pages")


@pytest.fixture(autouse=True)
def _plugins(monkeypatch):
    for path in [TREE / "src", *TREE.glob("plugins/*/src")]:
        monkeypatch.syspath_prepend(str(path))


def test_every_backend_is_in_deepspeeds_order():
    assert [(each.backend.name, each.backend.priority) for each in tool.shipped()] == [
        ("xpu.external", 900), ("xpu", 800), ("xpu", 790), ("npu", 700), ("sdaa", 600), ("mps", 500),
        ("hpu", 400), ("tpu", 350), ("mlu", 300), ("supa", 250), ("klxpu", 225), ("cuda", 200), ("cuda", 190),
        ("rbln", 175), ("generic", 100), ("cpu", 0),
    ]  # fmt: skip


def test_what_people_must_write_or_delete_is_named(tmp_path, capsys):
    backends = tmp_path / "docs/backends"
    shutil.copytree(TREE / "docs/backends/notes", backends / "notes")
    (tmp_path / tool.TABLE).parent.mkdir()
    (tmp_path / tool.TABLE).write_text("no markers\n")
    (backends / "notes/hpu.md").unlink()
    (backends / "acme.md").write_text("left over\n")
    assert tool.main(["--check"], tmp_path) == 1
    out = capsys.readouterr().out
    assert "docs/backends/notes/hpu.md: lacks ## Detection, ## Variables" in out
    assert "docs/backends/acme.md: no backend has this name, delete it" in out
    assert "docs/reference/backends.md: lacks the lines <!-- backends" in out
    assert "docs/backends/cuda.md: out of date, run ./dev docs --write" in out
    assert not (backends / "cuda.md").exists()
