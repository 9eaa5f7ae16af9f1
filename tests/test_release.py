"""`./dev release`: what stands against a release is said, each with the next step."""

import re
import subprocess

import pytest
from accel_tests.tools import load

_TOOL = load("release")
_METADATA = load("metadata")
_CORE = """
[project]
name = "accel-core"
dynamic = ["version"]

[project.urls]
Repository = "https://example.org/a/b"

[project.optional-dependencies]
train = ["accel-train==1.1.0"]
"""
_PLUGIN = """
[project]
name = "accel-acme"
version = "1.1.0"
dependencies = [
    "accel-core==1.1.0",
    "acme-driver==1.1.0",
]

# What the vendor sells.
[project.optional-dependencies]
vendor = ["torch-acme"]
"""


@pytest.fixture
def tool():
    return _TOOL


@pytest.fixture
def tree(tmp_path):
    """A tree that may be released as 1.2.0, with one plugin and one distribution beside the core."""
    for path, text in {
        "src/accel_core/__init__.py": '__version__ = "1.2.0"\n',
        "pyproject.toml": _CORE,
        "plugins/accel_acme/pyproject.toml": _PLUGIN,
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


def test_nothing_stands_against_it(tool, tree):
    assert list(tool.faults(tree)) == []


def test_everything_that_stands_against_it_is_said_at_once(tool, tree):
    (tree / "dist/accel_acme-1.2.0.tar.gz").rename(
        tree / "dist/accel_acme-1.1.9.tar.gz"
    )
    (tree / "dist/accel_core-1.2.0.tar.gz").unlink()
    (tree / "changelog.d/1.feature.md").write_text("New.")
    (tree / "CHANGELOG.md").write_text("# Changelog\n")
    subprocess.run(["git", "-C", str(tree), "tag", "v1.2.0"], check=True)
    (tree / "pyproject.toml").write_text(_CORE.replace("example.org", "accel.invalid"))
    told = "\n".join(tool.faults(tree))
    for words in (
        "dist/accel_acme-1.1.9.tar.gz is not of version 1.2.0",
        "dist/ has 2 files .tar.gz for 3 distributions",
        "changelog.d has 1 fragments (1.feature.md, …): towncrier build --version 1.2.0",
        "CHANGELOG.md has no heading for 1.2.0",
        "the working tree has changes",
        "the tag v1.2.0 exists",
        "https://accel.invalid/a/b is no address: set Repository in pyproject.toml",
    ):
        assert words in told


def test_a_section_without_a_date_stands_against_it(tool, tree):
    (tree / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.0 (unreleased)\n")
    assert (
        "CHANGELOG.md calls 1.2.0 unreleased: write the date into that heading"
        in tool.faults(tree)
    )


def test_version_pins_and_addresses_are_copied_from_one_place(tree):
    wanted = _METADATA.wanted(tree)
    core, plugin = (
        wanted[tree / path / "pyproject.toml"] for path in (".", "plugins/accel_acme")
    )
    assert '"accel-train==1.2.0"' in core
    for words in (
        'version = "1.2.0"',
        '"accel-core==1.2.0"',
        '"acme-driver==1.1.0"',  # another's
        'Repository = "https://example.org/a/b"\n',
        'Issues = "https://example.org/a/b/issues"\n\n# What the vendor sells.\n[project.opt',
    ):
        assert words in plugin
    for path, text in wanted.items():
        path.write_text(text)
    assert _METADATA.wanted(tree) == wanted  # and is copied once


def test_links_of_a_readme_lead_to_the_release(tool, tree):
    base, ref = "https://example.org/a/b", "v1.2.0"
    text = (
        "[![p](docs/p.svg)](docs/a.md#x) [d](../accel_acme) [e](https://e.org/x) [f](#f)\n"
        "[two\nlines](CHANGELOG.md)"
    )
    assert tool.absolute(text, tree / "plugins/accel_acme", tree, base, ref) == (
        f"[![p]({base}/raw/{ref}/plugins/accel_acme/docs/p.svg)]"
        f"({base}/blob/{ref}/plugins/accel_acme/docs/a.md#x) [d]({base}/tree/{ref}/plugins/accel_acme)"
        f" [e](https://e.org/x) [f](#f)\n[two\nlines]({base}/blob/{ref}/plugins/accel_acme/CHANGELOG.md)"
    )


def test_a_build_sees_the_working_tree_and_not_what_git_ignores(tool, tree):
    (tree / "plugins/accel_acme/pyproject.toml").unlink()
    (tree / "new.py").write_text("new")
    home = tree.parent / "copy"
    tool.copied(tree, home)
    assert (home / "new.py").is_file()
    assert not (home / "plugins").exists()
    assert not (home / "dist").exists()


def test_what_is_released_together_has_one_version_and_pins_the_others(tool):
    wanted = tool.version()
    for project in sorted(tool.ROOT.glob("packages/*/pyproject.toml")):
        text = project.read_text(encoding="utf-8")
        pins = re.findall(r'"(accel-[a-z]+)(?:\[\w+\])?([^"]*)"', text)
        assert f'\nversion = "{wanted}"\n' in text, project
        assert ("accel-core", f"=={wanted}") in pins, project
        own = re.findall(r'(?m)^name = "(.+)"', text)
        others = {
            (name, version.partition(";")[0].strip())
            for name, version in pins
            if name not in own
        }
        assert {version for _, version in others} == {f"=={wanted}"}, project
