"""What is offered to a shell that completes: commands, options, backends and files.

How a shell asks, and what it makes of the answer, is click's.
"""

from importlib.util import find_spec
from pathlib import Path

import click
import pytest

from accel_train.commands import deepspeed, run
from accel_train.launch.command_line import TORCHRUN_OPTIONS

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
def test_completion_offers(accel, words):
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
    assert set(TORCHRUN_OPTIONS) <= theirs
    offered = {
        item.value
        for item in run.command.params[0].shell_complete(click_context(run), "--")
    }
    assert set(TORCHRUN_OPTIONS) < offered


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
