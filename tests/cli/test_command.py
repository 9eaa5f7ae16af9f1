"""The command as a whole: help, version and colour."""

import os
import runpy
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from accel_core import __version__, cli, settings
from accel_core.cli import accel as command

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are POSIX")


def every_command():
    """Each command by name, imported."""
    context = click.Context(command)
    return {
        name: command.get_command(context, name)
        for name in command.list_commands(context)
    }


def invoke(*arguments):
    return CliRunner().invoke(command, arguments, prog_name="accel")


def test_version():
    assert invoke("--version").output == f"accel-core {__version__}\n"


def test_help_fits_a_screen_and_names_every_command():
    result = invoke("--help")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    listed = lines[lines.index("Commands:") + 1 :]
    # A line each, so that the list is read at a glance.
    assert [line.split()[0] for line in listed] == list(cli.installed_commands())
    assert "Exit status" in result.output


def test_help_of_a_topic():
    told = invoke("help", "variables").output
    assert all(variable.name in told for variable in settings.VARIABLES)
    assert invoke("help", "why").output == invoke("why", "--help").output
    assert invoke("help").output == invoke("--help").output
    wrong = invoke("help", "lits")
    assert wrong.exit_code == 2
    assert "Did you mean 'list'?" in wrong.output


def test_an_option_means_the_same_in_every_command():
    with_timeout = (
        "bench",
        "doctor",
        "frameworks",
        "env",
        "declarations",
        "info",
        "list",
        "ops",
        "verify",
        "why",
    )
    helps = set()
    for name, each in every_command().items():
        options = {
            word: parameter for parameter in each.params for word in parameter.opts
        }
        assert "-v" not in options, name  # accel -v: what is tried, and when
        assert ("--timeout" in options) == (name in with_timeout), name
        helps |= {options["--timeout"].help} if name in with_timeout else set()
    assert len(helps) == 1


@pytest.mark.parametrize("name", ["bench", "list", "info", "why", "completion"])
def test_every_command_has_help(name):
    result = invoke(name, "-h")
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: accel {name}")


def test_the_line_of_a_command_is_the_first_sentence_of_its_help():
    for name, summary in cli.SUMMARIES.items():
        found = every_command()[name]
        assert found.name == name
        assert found.get_short_help_str(1000) == summary


MODULES = frozenset({"accel_core.cli.list", "accel_core.cli.why"})


def test_help_and_completion_import_no_command_and_a_command_no_other(accel):
    assert accel("--help", watched=MODULES).stderr.endswith("loaded: []")
    words = {
        "_ACCEL_COMPLETE": "bash_complete",
        "COMP_WORDS": "accel w",
        "COMP_CWORD": "1",
    }
    done = accel(watched=MODULES, **words)
    assert done.stdout.split() == ["plain,why"]
    assert done.stderr.endswith("loaded: []")
    assert accel("why", "cpu", watched=MODULES).stderr.endswith(
        "loaded: ['accel_core.cli.why']"
    )


def test_the_module_runs_as_the_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["__main__.py", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("accel_core", run_name="__main__")
    assert ended.value.code == 0
    assert __version__ in capsys.readouterr().out


def test_json_and_help_need_no_rich(accel):
    for arguments in (["list", "--json"], ["--help"]):
        assert accel(*arguments, watched=frozenset({"rich"})).stderr.endswith(
            "loaded: []"
        )


def test_a_file_on_pythonpath_that_hides_a_module_of_python_is_named(tmp_path):
    (tmp_path / "random.py").write_text("SEED = 1\n")
    done = subprocess.run(
        [sys.executable, "-m", "accel_core", "--version"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"accel-core {__version__}\n"
    assert f"accel: Python imports {tmp_path / 'random.py'} instead" in done.stderr
