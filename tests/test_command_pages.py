"""docs/reference/command.md, as Sphinx renders it: each command has a heading, each option its entry."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from accel_core.cli import accel

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
        "-D",
        "suppress_warnings=myst.xref_missing",  # the other pages are not built
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
    headings = re.findall(r"<h4>(\w+)<", page_of_commands)
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
        "accel list                    show the backends, and which of them are usable\n"
        in page_of_commands
    )
    assert "zsh, in ~/.zshrc:                     eval " in page_of_commands
