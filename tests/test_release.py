"""`./dev release`: what stands against a release is said, each with the next step."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
from accel_tests.tools import load

_TOOL = load("release")


@pytest.fixture
def tool() -> ModuleType:
    return _TOOL


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree that may be released as 1.2.0, with one plugin and one distribution beside the core."""
    for path, text in {
        "src/accel_core/_version.py": '__version__ = "1.2.0"\n',
        "plugins/accel_acme/pyproject.toml": "",
        "packages/accel_train/pyproject.toml": "",
        "changelog.d/.gitkeep": "",
        "CHANGELOG.md": "# Changelog\n\n## accel-core 1.2.0 (2026-12-01)\n",
        ".gitignore": "/dist/\n",
        **{
            f"dist/accel_{n}-1.2.0{e}": ""
            for n in ("core", "acme", "train")
            for e in ("-py3-none-any.whl", ".tar.gz")
        },
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for command in (("init", "-q"), ("add", "-A"), (*who, "commit", "-q", "-m", "all")):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    return tmp_path


def test_nothing_stands_against_it(tool: ModuleType, tree: Path) -> None:
    assert list(tool.faults(tree)) == []


def test_everything_that_stands_against_it_is_said_at_once(tool: ModuleType, tree: Path) -> None:
    (tree / "dist/accel_acme-1.2.0.tar.gz").rename(tree / "dist/accel_acme-1.1.9.tar.gz")
    (tree / "dist/accel_core-1.2.0.tar.gz").unlink()
    (tree / "changelog.d/1.feature.md").write_text("New.")
    (tree / "CHANGELOG.md").write_text("# Changelog\n")
    subprocess.run(["git", "-C", str(tree), "tag", "v1.2.0"], check=True)
    told = "\n".join(tool.faults(tree))
    for words in (
        "dist/accel_acme-1.1.9.tar.gz is not of version 1.2.0",
        "dist/ has 2 files .tar.gz for 3 distributions",
        "changelog.d has 1 fragments (1.feature.md, …): towncrier build --version 1.2.0",
        "CHANGELOG.md has no heading for 1.2.0",
        "the working tree has changes",
        "the tag v1.2.0 is there already",
    ):
        assert words in told


def test_what_is_released_together_has_one_version_and_pins_the_others(tool: ModuleType) -> None:
    wanted = tool.version()
    for project in sorted(tool.ROOT.glob("packages/*/pyproject.toml")):
        text = project.read_text(encoding="utf-8")
        pins = re.findall(r'"(accel-[a-z]+)(?:\[\w+\])?([^"]*)"', text)
        assert f'\nversion = "{wanted}"\n' in text, project
        assert ("accel-core", f"=={wanted}") in pins, project
        own = re.findall(r'(?m)^name = "(.+)"', text)
        others = {(name, version.partition(";")[0].strip()) for name, version in pins if name not in own}
        assert {version for _, version in others} == {f"=={wanted}"}, project
