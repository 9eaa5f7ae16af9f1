"""Pages that are held against the code: a declaration's fields, members, torch's names, commands."""

import inspect
import re
import shutil
import subprocess
import sys
from dataclasses import fields
from operator import attrgetter
from pathlib import Path

import click
import pytest
from accel_tests import surfaces
from accel_tests.tools import load
from click.testing import CliRunner

import accel_core
from accel_core.backend import RECORDS
from accel_core.cli import accel
from accel_core.interface.torch_device import FORWARDED

# ---------------------------------------------------------------------------- plugin pages
# What plugin authors read is whole: the fields of `Backend`, and the members to override.


MEMBERS = Path(__file__).parents[1] / "docs/reference/members.md"


def test_help_tells_every_field_of_a_declaration():
    kinds = (accel_core.Backend, *RECORDS.values())
    names = {kind: [field.name for field in fields(kind)] for kind in kinds}
    assert len(names) == 6
    for kind, expected in names.items():
        text = inspect.cleandoc(
            kind.__doc__ or ""
        )  # Python 3.13 takes the indentation off itself
        assert re.findall(r"^    (\w+): \S", text, re.MULTILINE) == expected
        assert getattr(accel_core, kind.__name__) is kind


def test_the_page_of_members_has_each_once():
    rows = [
        line.split("|")[1]
        for line in MEMBERS.read_text("utf-8").splitlines()
        if line.startswith("| `")
    ]
    told = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(told) == sorted(
        name for name in dir(accel_core.Accelerator) if name[0] != "_"
    )


def test_the_stand_ins_are_public():
    for name in ("HostStream", "HostEvent", "NotImplementedBuilder"):
        assert getattr(accel_core, name).__doc__
        assert name in MEMBERS.read_text("utf-8")


# ---------------------------------------------------------------------------- member page
# docs/reference/torch-accelerator.md: every member once, and what it says of torch is what torch has.


TOOL = load("member_page")


def version(text):
    """The first two numbers."""
    return tuple(map(int, text.split(".")[:2]))


def test_they_are_those_of_the_surface_and_of_what_is_bound():
    known = TOOL.facts()
    surface = surfaces.load("torch_accelerator").modules["torch.accelerator"]
    public = {
        n for n, entry in surface.items() if n[0] != "_" and entry.kind != "module"
    }
    since = known["since"]
    assert public == {
        name for name in since if version(since[name]) <= (2, 13)
    }  # the surface is of torch 2.13
    assert {
        name: torchs for name, torchs in FORWARDED.items() if torchs
    }.items() <= known["members"].items()


def test_they_are_those_of_the_torch_that_is_here():
    torch = pytest.importorskip("torch")
    known = TOOL.facts()
    here = version(torch.__version__)
    expected = {
        name for name, since in known["since"].items() if version(since) <= here
    }
    random = [
        f"random.{name}"
        for name in getattr(getattr(torch.accelerator, "random", None), "__all__", ())
    ]
    found = {*torch.accelerator.__all__, *random}
    assert found == expected if here <= version(known["read_to"]) else found >= expected
    # Torch 2.6 lacks both, 2.10 the second.
    newer = {"torch.Stream.__enter__": (2, 7), "torch.Stream.is_capturing": (2, 12)}
    for path in known["elsewhere"].values():
        assert here < newer.get(path, here) or attrgetter(path.removeprefix("torch."))(
            torch
        )


# ---------------------------------------------------------------------------- page of commands
# docs/reference/command.md, as Sphinx renders it: every command has a heading, and every option its entry.


DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def page_of_commands(tmp_path_factory):
    """The page alone, rendered as HTML with the settings of the whole site."""
    for needed in ("sphinx_click", "myst_parser", "furo", "sphinx_copybutton"):
        pytest.importorskip(needed)
    folder = tmp_path_factory.mktemp("page")
    source = folder / "source"
    source.mkdir()
    shutil.copy(DOCS / "reference/command.md", source)
    sphinx = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "-q",
        "-c",
        DOCS,
        "-D",
        "root_doc=command",
    ]
    built = subprocess.run(
        [*sphinx, source, folder / "site"], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    return (folder / "site" / "command.html").read_text(encoding="utf-8")


def test_every_command_of_the_help_has_a_heading(page_of_commands):
    help_text = CliRunner().invoke(accel, ["--help"]).output
    section = help_text.partition("\nCommands:\n")[2].partition("\n\n")[0]
    names = re.findall(r"^  (\S+)", section, re.MULTILINE)
    assert {"list", "doctor", "run", "verify"} <= {*names}
    headings = re.findall(r"<h3>(\w+)<", page_of_commands)
    assert headings == sorted(names)


def test_every_option_is_on_the_page(page_of_commands):
    with click.Context(accel, info_name="accel") as context:
        commands = {
            name: accel.get_command(context, name)
            for name in accel.list_commands(context)
        }
    for name, command in commands.items():
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                anchor = (
                    f'id="cmdoption-accel-{name}{option.opts[0].removeprefix("-")}"'
                )
                assert anchor in page_of_commands, anchor
    for option_of_run in ("--one-device-per-rank", "--nproc-per-node N"):
        assert option_of_run in page_of_commands


def test_the_columns_of_the_examples_stay(page_of_commands):
    assert (
        "accel list                    the backends, and which of them can be used\n"
        in page_of_commands
    )
    assert "zsh, in ~/.zshrc:                     eval " in page_of_commands
