"""The command as a whole: help, version, completion, colour, its output, and commands of others."""

import io
import json
import os
import re
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import click
import pytest
from accel_tests import children
from click.testing import CliRunner

from accel_core import __version__, cli, settings
from accel_core.cli import accel as command
from accel_core.cli.output import Output
from accel_train.commands import deepspeed, run
from accel_train.launch.command_line import MOST_USED

# ---------------------------------------------------------------------------- command
# The command as a whole: help, version, completion, colour, and what it does with its output.


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
        "doors",
        "env",
        "facts",
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
        assert (found.name, found.get_short_help_str(1000)) == (name, summary)


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


# --- exit statuses -------------------------------------------------------------------------------------

#: Where `card` works, `off` has no device, and nothing is called `npx`: 0 it is so, 1 it is not, 2 misuse.
ASK = ("why", "info", "env", "ops", "doors", "facts")
STATUSES = [
    *((name, "card", 0) for name in (*ASK, "doctor --topic candidates")),
    *((name, "off", 1) for name in ("why", "info", "bench")),
    *(
        (name, wrong, 2)
        for name in (*ASK, "doctor", "bench", "verify")
        for wrong in ("npx", "@")
    ),
    *(
        ("help", "lits", 2),
        ("doctor --topic", "chekcs", 2),
        ("setup", "npx", 2),
        ("try", "npx", 2),
    ),
]


@pytest.mark.parametrize(("words", "name", "status"), STATUSES)
def test_one_rule_of_exit_statuses(accel, words, name, status):
    accel.install_card()
    accel.world.backend("npu", 980)
    accel.install("off", "ProbeResult(False, 'switched off')")
    first, *options = words.split()
    after = ["--", "true"] if first == "try" else []
    done = accel(first, *options, name, *after)
    assert done.returncode == status, done
    if (
        status == 2 and name != "@" and first != "try"
    ):  # nothing that can be tried is installed
        assert "Did you mean" in done.stderr + done.stdout


# --- output --------------------------------------------------------------------------------------------


def program(world, *arguments):
    """A Python program that is the command, with what is installed in this world."""
    path = [*world.path, str(children.SIMULATED)]
    return (
        f"import sys; sys.path[:] = {path!r}; sys.argv = ['accel', *{arguments!r}]; "
        "from accel_core.cli import main; main()"
    )


def on_a_terminal(world, *arguments, columns=80, **env):
    """What the command writes to a terminal of that width."""
    import fcntl
    import pty
    import struct
    import termios

    code = program(world, *arguments)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    clean = children.clean_environment(**{"TERM": "xterm-256color", **env})
    for name in ("COLUMNS", "NO_COLOR"):
        clean.pop(name, None) if name not in env else None
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=clean,
    ) as process:
        os.close(theirs)
        said = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # Linux's way to say that the other side is closed
                break
            if not piece:
                break
            said += piece
        process.wait(60)
    os.close(ours)
    return said.decode()


ESCAPE = "\x1b["


@POSIX
def test_a_terminal_shows_what_is_waited_for(accel):
    accel.world.module("torch_slow", "import time; time.sleep(3.5)")
    accel.world.backend("slow", 990, vendor_import="torch_slow")
    said = on_a_terminal(accel.world, "why")
    assert re.search(
        r"\r\x1b\[Kimporting torch_slow \(accel-slow 1.0\), [23] s \.\.\.", said
    )
    assert "..." not in accel("why").stderr


@POSIX
@pytest.mark.parametrize("columns", [0, 60, 160])  # 0: it does not know
def test_a_terminal_has_colour_and_is_filled_and_not_overrun(accel, columns):
    accel.install("npu", f"ProbeResult(False, {'reason ' * 60!r})")
    said = on_a_terminal(accel.world, "list", columns=columns)
    longest = max(len(re.sub(r"\x1b\[[\d;]*m", "", line)) for line in said.splitlines())
    width = columns or 80
    assert width - 12 <= longest <= width
    assert ESCAPE in said
    assert ESCAPE not in on_a_terminal(
        accel.world, "list", **({"TERM": "dumb"} if columns else {"NO_COLOR": "1"})
    )
    assert ESCAPE not in accel("list").stdout


@POSIX
def test_a_reader_that_goes_away_is_no_error(accel):
    code = program(accel.world, "list")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, text=True, check=False,
        env=children.clean_environment(),
    )  # fmt: skip
    os.close(write)
    assert done.returncode == 1
    assert done.stderr == ""


@POSIX
@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_closed_descriptor_is_no_crash(accel, closed, tmp_path):
    file = tmp_path / "program.py"
    file.write_text(program(accel.world, "list", "--all"))
    shell = (
        f'exec "{sys.executable}" "{file}" {">&-" if closed == "stdout" else "2>&-"}'
    )
    done = subprocess.run(
        ["sh", "-c", shell],
        capture_output=True,
        text=True,
        check=False,
        env=children.clean_environment(),
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert ("DISTRIBUTION" in done.stdout) == (closed == "stderr")


def written(world, *arguments, stdout, **variables):
    """The command with this file for its stdout."""
    environ = children.untraced(children.clean_environment(**variables))
    command = [sys.executable, "-c", program(world, *arguments)]
    with Path(stdout).open("wb") as file:
        return subprocess.run(
            command,
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=environ,
        )


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="Linux has a device that is always full"
)
@pytest.mark.parametrize("arguments", [["list"], ["list", "--json"]], ids=" ".join)
def test_a_full_disk_is_one_line_and_status_1(accel, arguments):
    done = written(accel.world, *arguments, stdout="/dev/full")
    assert done.returncode == 1
    assert done.stderr == "Error: stdout cannot be written: No space left on device\n"


def test_colour_can_be_asked_for_and_refused(accel):
    accel.install("npu")
    assert ESCAPE in accel("list", FORCE_COLOR="1").stdout
    assert ESCAPE not in accel("list", FORCE_COLOR="1", NO_COLOR="1").stdout
    assert ESCAPE not in accel("list", FORCE_COLOR="").stdout


def test_without_a_locale_nothing_is_lost(accel, tmp_path):
    accel.install("npu", r"ProbeResult(False, 'driver \u9a71', 'see \u9a71\u52a8')")
    bare = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for arguments in (["list"], ["why", "npu"]):
        done = written(accel.world, *arguments, stdout=tmp_path / "said", **bare)
        assert "Traceback" not in done.stderr
        assert rb"driver \u9a71" in (tmp_path / "said").read_bytes()


class Terminal(io.StringIO):
    """A stream that says it is a terminal, and has no descriptor."""

    isatty = staticmethod(lambda: True)


def test_a_stream_that_is_no_file_is_written_to(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    stream = Terminal()
    output = Output(stream)
    assert output.width == 80
    output.write("words")
    assert stream.getvalue() == "words\n"


def test_in_process_too_a_plugin_cannot_spoil_the_document(torch_world, capsys):
    torch_world.plugin("loud", "print('hello')\nraise OSError('and goodbye')")
    command.main(
        ["list", "--json", "--no-probe"], prog_name="accel", standalone_mode=False
    )
    said = capsys.readouterr()
    assert json.loads(said.out)["chosen"] is None
    assert said.err.count("hello") == 1


# ---------------------------------------------------------------------------- commands beside
# Commands of other distributions: listed without importing them, and none costs another.


COMMAND = """
import click

@click.command("rack")
@click.argument("number", type=int)
def command(number):
    "Say which of the racks has a free device."
    click.echo(f"rack {number}")
"""


@pytest.fixture
def rack(accel):
    """Install a command `rack` of these sources, in distribution acme-commands 1.2."""

    def install(package="", module=COMMAND, name="rack"):
        accel.world.distribution(
            "acme-commands", "1.2", {"accel.commands": {name: "acme_commands"}}
        )
        accel.world.module("acme_commands.__init__", package)
        accel.world.module("acme_commands.rack", module)

    return install


def test_a_third_partys_command_is_listed_and_runs(accel, rack):
    rack()
    told = accel(
        "--help",
        torch=False,
        watched=frozenset({"acme_commands", "acme_commands.rack"}),
    )
    assert "rack        A command of acme-commands 1.2." in told.stdout
    assert told.stderr == "loaded: []"
    assert accel("rack", "3", torch=False).stdout == "rack 3\n"
    wrong = accel("rack", "x", torch=False)
    assert (wrong.returncode, "Usage: accel rack" in wrong.stderr) == (2, True), (
        wrong.stderr
    )


@pytest.mark.parametrize(
    ("package", "module", "said"),
    [
        (
            "raise OSError('libacme.so: cannot open')",
            COMMAND,
            "libacme.so: cannot open",
        ),
        ("import sys; sys.exit(3)", COMMAND, "acme-commands 1.2 cannot be used: "),
        (
            "",
            "import no_such_module_of_acme",
            "No module named 'no_such_module_of_acme'",
        ),
        ("", "", "acme_commands.rack"),
    ],
    ids=["package raises", "package exits", "module raises", "no command"],
)
def test_one_that_fails_says_so_and_the_others_work(accel, rack, package, module, said):
    rack(package, module)
    failed = accel("rack", "3", torch=False)
    assert failed.returncode == 1, failed.stderr
    assert said in failed.stderr
    assert "Traceback" not in failed.stderr


@pytest.mark.parametrize("name", ["list", "doctor"])
def test_none_takes_the_place_of_one_of_ours(accel, rack, name):
    rack(name=name)
    assert "acme" not in accel("--help", torch=False).stdout
    assert accel("list", torch=False).returncode == 0


def test_the_other_commands_import_none_of_it(accel, rack):
    rack("import os; os._exit(3)")
    for words in (("list",), ("why", "cpu"), ("help", "variables"), ("--help",)):
        done = accel(*words, torch=False)
        assert (done.stdout != "", "rack" in done.stdout) == (
            True,
            words == ("--help",),
        ), (words, done)
    assert accel("rack", torch=False).returncode == 3


# ---------------------------------------------------------------------------- completion
# What is offered to a shell that completes: commands, options, backends and files.
# How a shell asks, and what it makes of the answer, is click's.


#: What is typed before the tab key, and what is offered for it; "file": names of files.
TYPED = {
    "accel li": "plain,list",
    "accel list --no-p": "plain,--no-probe",
    "accel verify --expected my_pag": "file,my_pag",
    "accel why np": "plain,npu",
    "accel run --one-d": "plain,--one-device-per-rank",
    "accel run --backend np": "plain,npu",
    "accel run my_tr": "file,my_tr",
    "accel deepspeed --num_g": "plain,--num_gpus",
}


@pytest.mark.parametrize("words", TYPED)
def test_what_is_offered(accel, words):
    accel.world.plugin("npu", "raise SystemExit('it was imported')")
    place = str(len(words.split()) - 1)
    done = accel(
        _ACCEL_COMPLETE="bash_complete",
        COMP_WORDS=words,
        COMP_CWORD=place,
        process=True,
    )
    assert TYPED[words] in done.stdout.split(), done
    assert done.stderr == ""


@pytest.mark.skipif(not find_spec("torch"), reason="torchrun is torch's")
def test_what_is_offered_of_torchruns_options_are_its_options():
    from torch.distributed.run import get_args_parser

    theirs = {
        option
        for action in get_args_parser()._actions
        for option in action.option_strings
    }
    assert set(MOST_USED) <= theirs
    offered = {
        item.value
        for item in run.command.params[0].shell_complete(click_context(run), "--")
    }
    assert set(MOST_USED) < offered


@pytest.mark.skipif(not find_spec("deepspeed"), reason="the launcher is DeepSpeed's")
def test_what_is_offered_of_the_launchers_options_are_its_options():
    source = Path(find_spec("deepspeed").origin).parent / "launcher" / "runner.py"
    offered = [
        item.value
        for item in deepspeed.command.params[0].shell_complete(
            click_context(deepspeed), "--"
        )
    ]
    text = source.read_text("utf-8")
    assert [option for option in offered if f'"{option}"' not in text] == ["--help"]


def click_context(module):
    return click.Context(module.command)
