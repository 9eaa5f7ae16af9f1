"""Whatever is typed behind `accel`: a call that can be made, or an error in words."""

import contextlib
import importlib
import io

import click
import pytest
from accel_tests.fuzzing import fuzzed
from accel_tests.tools import words
from hypothesis import example
from hypothesis import strategies as st

from accel_core.cli import accel, installed_commands
from accel_core.errors import AccelError, LaunchError
from accel_train.launch import command_line, plan

#: A command is made below it, as click keeps a command's names of `--help` from the first time.
ACCEL = click.Context(accel, info_name="accel", **accel.context_settings)
COMMANDS = {name: accel.get_command(ACCEL, name) for name in installed_commands()}
PARSED = sorted(
    set(COMMANDS) - {"run", "deepspeed"}
)  # those two hand their arguments on
OPTIONS = sorted(
    {
        option
        for name in PARSED
        for parameter in COMMANDS[name].params
        for option in parameter.opts
    }
)
WORD = st.sampled_from(
    [
        "npu",
        "cpu@accel-core",
        "@",
        ",",
        "",
        "-",
        "--",
        "0",
        "-1",
        "1e9",
        "nan",
        "x.svg",
        "/",
        "a" * 5000,
    ]
) | st.text(max_size=8)


@pytest.mark.parametrize("name", PARSED)
@fuzzed(words=st.lists(st.sampled_from(OPTIONS) | WORD, max_size=5))
def test_arguments_are_understood_or_refused(name, words):
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.suppress(click.ClickException, click.exceptions.Exit),
    ):
        COMMANDS[name].make_context(name, list(words), parent=ACCEL)


MACHINE = plan.Machine("cpu", "cpu", "", True, 1, "gloo", ["cpu"], [None], [], "", "")
KNOWN = (*command_line.OPTIONS, *command_line.FLAGS, *command_line.TORCHRUN_OPTIONS)
RUN = [*KNOWN, *words("-m --run-path --role -r -t")]
COUNT = st.sampled_from(
    ["", "9" * 5000, *words("1 2 0 -1 auto cpu gpu 1:2 2:1 : x 1e3 \u0663 1000000000")]
)


@pytest.fixture(scope="module")
def torchrun():
    """torchrun's parser: loaded before anything is measured."""
    pytest.importorskip("torch", reason="the options are torchrun's: needs torch")
    importlib.import_module("torch.distributed.run")


@pytest.mark.usefixtures("torchrun")
@fuzzed(
    words=st.lists(
        st.sampled_from(RUN)
        | COUNT
        | WORD
        | st.builds("{}={}".format, st.sampled_from(RUN), COUNT),
        max_size=5,
    )
)
@example(words=["--nproc-per-node", "1000000000"])
@example(words=["--nproc-per-node", "9" * 5000])
def test_a_run_is_planned_or_refused(words):
    with (
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        try:
            parsed = command_line.parse([*words, "train.py"])
        except (SystemExit, AccelError):
            return
    try:
        plans = plan.plan_ranks(parsed, MACHINE)
    except LaunchError as error:
        assert str(error)
        return
    assert plans
    assert plan.describe(MACHINE, parsed, plans).count("local rank") == len(plans)
