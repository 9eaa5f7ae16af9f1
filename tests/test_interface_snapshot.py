"""tools/interface_snapshot.py: what changes of the interface is said by member, with what has to be done."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from accel_testing.tools import TREE, load

_TOOL = load("interface_snapshot")
RECORDED = json.loads(_TOOL.RECORD.read_text(encoding="utf-8"))


@pytest.fixture
def tool() -> ModuleType:
    return _TOOL


@pytest.fixture
def said(tool, tmp_path) -> Callable[..., list[str]]:
    """`said(section, name, text)`: what stands against that change, `text` empty where it goes away."""

    def change(section: str, name: str, text: str, *, raised: bool = False, **fragments: str) -> list[str]:
        now = copy.deepcopy(RECORDED["interface"])
        now[section][name] = text
        if not text:
            del now[section][name]
        for kind, words in fragments.items():
            (tmp_path / "changelog.d").mkdir(exist_ok=True)
            (tmp_path / f"changelog.d/1.{kind}.9.md").write_text(words, encoding="utf-8")
        found = tool.changes(RECORDED["interface"], now)
        assert [(c.section, c.name) for c in found] == [(section, name)]
        return list(tool.faults(found, raised, tool.told(tmp_path), 2, "0.1.0"))

    return change


@pytest.mark.parametrize(
    ("section", "name", "text", "fragment", "raised", "stands"),
    [
        ("members", "Accelerator.spin", "(self) -> None", "", False,
         ["Accelerator.spin is new, '(self) -> None'. Say so in changelog.d/ISSUE.TYPE.md, with `spin`"]),
        ("members", "Accelerator.spin", "(self) -> None", "`acc.spin()` spins.", False, []),
        ("verdicts", "melted", "status", "It melted.", False, ["`melted` in it"]),  # a word, and no name
        ("json", "accel list: backends[].heat", "key", "", False, ["with `heat` in it"]),
        ("fields", "heat", "int = 0", "`Backend.heat`", False,
         ["API level 2 too, and an older accel-core refuses a plugin with it: raise API_LEVEL in src/"]),
        ("fields", "heat", "int = 0", "`Backend.heat`", True, []),
        ("hooks", "accel_probe", "(backend: Backend, others: tuple[Backend, ...], heat: int) -> object",
         "`accel_probe`", False, ["refuses a plugin whose hook asks for what is new: raise API_LEVEL"]),
        ("members", "Accelerator.synchronize", "(self, device_index=None, *, soon: bool = False) -> None",
         "`synchronize`", False, ["of an override as it was: it takes no soon: raise API_LEVEL"]),
        ("members", "Accelerator.api_level", "(self) -> int", "`api_level`", False,
         ["a method became an attribute"]),
        ("members", "Accelerator.synchronize", "(self, device_index: Device = None) -> bool", "`synchronize`",
         False, []),
    ],
)  # fmt: skip
def test_what_changed_is_said_with_what_to_do(said, section, name, text, fragment, raised, stands):
    found = said(section, name, text, raised=raised, feature=fragment)
    assert len(found) == len(stands)
    for words, part in zip(found, stands, strict=True):
        assert part in words


def test_a_new_class_or_document_stands_for_what_is_in_it(tool):
    before = {"json": {"accel list": "document"}, "names": {}}
    now = {
        "json": {
            "accel list": "document",
            "accel list: a": "key",
            "accel new": "document",
            "accel new: a": "key",
        },
        "names": {"accel_core.Heat": "class", "accel_core.Heat.rise": "(self) -> None"},
    }
    assert [c.name for c in tool.changes(before, now)] == ["accel list: a", "accel new", "accel_core.Heat"]


def test_what_goes_away_must_be_told_as_a_removal(said):
    (words,) = said("members", "Accelerator.synchronize", "", feature="`synchronize` is no more.")
    assert words.startswith(
        "members: Accelerator.synchronize was '(self, device_index: Device = None) -> None', and"
    )
    assert "changelog.d/ISSUE.removal.md" in words
    assert said("members", "Accelerator.synchronize", "", removal="`synchronize()`: use a stream's.") == []


def test_the_tree_is_held_against_the_record_and_writing_refuses_the_same(tool, tmp_path, capsys):
    pytest.importorskip("torch")
    for name in ("docs/members.md", "docs/reference/json.md", "docs/bench.md", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((TREE / name).read_bytes())
    now = tool.interface(tmp_path)
    old = tmp_path / "interface.json"
    del now["members"]["Accelerator.synchronize"]

    def status(*arguments: str, **record: object) -> int:
        document = {"version": "0.0.9", "api_level": RECORDED["api_level"], "interface": now, **record}
        if record:
            old.write_text(json.dumps(document), encoding="utf-8")
        before = old.read_bytes()
        code: int = tool.main(list(arguments), tmp_path, old)
        assert (old.read_bytes() != before) is (not code and arguments == ("--write",))
        return code

    assert status("--check", version="0.0.9") == 1
    assert "Accelerator.synchronize is new" in capsys.readouterr().out
    assert status("--write") == 1
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "changelog.d/1.feature.md").write_text("`synchronize()` waits.")
    assert status("--check") == 0
    assert status("--write") == 0
    assert json.loads(old.read_bytes())["interface"] == tool.interface(tmp_path)
    assert status("--check") == 0
    # An inner name that the page tells plugins of, and that there is not.
    page = tmp_path / "docs/members.md"
    page.write_text(page.read_text().replace("`_select`", "`_selects`"))
    with pytest.raises(SystemExit, match="no accelerator has _selects"):
        tool.main(["--check"], tmp_path, old)


def test_nothing_recorded_is_said(tool, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(tool, "interface", lambda root: {})
    assert tool.main(["--check"], tmp_path, Path(tmp_path / "none.json")) == 1
    assert "none.json: missing, run python tools/interface_snapshot.py --write" in capsys.readouterr().out
