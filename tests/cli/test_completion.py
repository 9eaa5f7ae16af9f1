"""The tab key in real shells: commands, options, backends, operators and files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from accel_tests import children

from accel_train.commands import deepspeed, run
from accel_train.launch.command_line import MOST_USED

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are POSIX")

START = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'PS1="ready> "; eval "$(accel completion bash)"'),
    "zsh": (
        ["zsh", "-f", "-i"],
        'PS1="ready> "; autoload -U compinit; compinit -u; eval "$(accel completion zsh)"',
    ),
}
#: What is typed before the tab key, and what stands there after it.
TYPED = {
    "accel li": "accel list ",
    "accel list --no-p": "accel list --no-probe",
    "accel verify --expected my_pag": "accel verify --expected my_page.svg",
    "accel why np": "accel why npu",
    "accel run --one-d": "accel run --one-device-per-rank",
    "accel run --backend np": "accel run --backend npu",
    "accel run my_tr": "accel run my_train.py",
    "accel ops FusedL": "accel ops FusedL",
    "accel deepspeed --num_g": "accel deepspeed --num_gpus",
}


@pytest.fixture
def shell_home(accel, tmp_path):
    """A folder with `accel` in it, as a program in a world with one plugin, and two files to find."""
    accel.world.plugin("npu", "raise SystemExit('it was imported')")
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "accel"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path[:] = {list(map(str, accel.world.path))!r}\n"
        "from accel_core.cli import main\nmain()\n"
    )
    program.chmod(0o755)
    for name in ("my_train.py", "my_page.svg"):
        (home / name).write_text("")
    return home


class Shell:
    """A shell at a pseudo-terminal."""

    def __init__(self, name, home):
        import fcntl
        import pty
        import struct
        import termios

        command, setup = START[name]
        environ = children.untraced(children.clean_environment(TERM="dumb", HOME=str(home)))
        environ["PATH"] = f"{home / 'bin'}:{environ['PATH']}"
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
        self._process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ, cwd=home, start_new_session=True
        )
        os.close(theirs)
        self._type(f"{setup}\n")
        self._until(
            lambda said: (
                said.count("\nready> ") + said.startswith("ready> ") >= 1 and said.endswith("ready> ")
            )
        )

    def completed(self, words, wanted):
        """What the line reads once it holds `wanted`, or after some seconds."""
        self._type(f"{words}\t")
        said = self._until(lambda said: wanted in said)
        self._type("\x15\n")  # without the line: the next one is empty
        self._until(lambda said: said.endswith("ready> "))
        return said

    def end(self):
        children.kill(self._process)
        self._process.wait()
        os.close(self._ours)

    def _type(self, text):
        os.write(self._ours, text.encode())

    def _until(self, enough):
        import select

        said, end = "", time.monotonic() + 20
        while not enough(said) and time.monotonic() < end:
            if select.select([self._ours], [], [], 0.2)[0]:
                piece = os.read(self._ours, 4096).decode("utf-8", "replace")
                said += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x07", "", piece)
        return said


@pytest.mark.nightly(reason="types into real shells, and waits for their prompts")
@pytest.mark.parametrize("name", START)
def test_the_tab_key_completes(shell_home, name):
    if not shutil.which(name):
        pytest.skip(f"{name} is not installed")
    shell = Shell(name, shell_home)
    try:
        for words, wanted in TYPED.items():
            assert wanted in shell.completed(words, wanted), words
    finally:
        shell.end()


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
def test_fish_completes(shell_home):
    environ = children.untraced(children.clean_environment(HOME=str(shell_home)))
    environ["PATH"] = f"{shell_home / 'bin'}:{environ['PATH']}"
    for words, wanted in TYPED.items():
        done = subprocess.run(
            ["fish", "--no-config", "-c", 'accel completion fish | source; complete -C "$argv"', words],
            env=environ, cwd=shell_home, capture_output=True, text=True, check=True,
        )  # fmt: skip
        offered = [line.partition("\t")[0] for line in done.stdout.splitlines()]
        assert any(word.startswith(wanted.split()[-1]) for word in offered), (words, done)


@pytest.mark.skipif(not find_spec("torch"), reason="torchrun is torch's")
def test_what_is_offered_of_torchruns_options_are_its_options():
    from torch.distributed.run import get_args_parser

    theirs = {option for action in get_args_parser()._actions for option in action.option_strings}
    assert set(MOST_USED) <= theirs
    offered = {item.value for item in run.command.params[0].shell_complete(click_context(run), "--")}
    assert set(MOST_USED) < offered


@pytest.mark.skipif(not find_spec("deepspeed"), reason="the launcher is DeepSpeed's")
def test_what_is_offered_of_the_launchers_options_are_its_options():
    source = Path(find_spec("deepspeed").origin).parent / "launcher" / "runner.py"
    offered = [
        item.value for item in deepspeed.command.params[0].shell_complete(click_context(deepspeed), "--")
    ]
    text = source.read_text("utf-8")
    assert [option for option in offered if f'"{option}"' not in text] == ["--help"]


def click_context(module):
    import click

    return click.Context(module.command)
