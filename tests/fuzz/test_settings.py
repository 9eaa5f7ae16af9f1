"""Whatever stands in the environment or is typed behind `accel`: settings, a call, or an error in words."""

import contextlib
import importlib
import io
import json
import os
import shlex

import click
import pytest
from accel_tests import variables
from accel_tests.fuzzing import fuzzed
from accel_tests.tools import words
from hypothesis import example
from hypothesis import strategies as st

from accel_core import settings
from accel_core.backend import GRAMMARS
from accel_core.cli import accel, announced
from accel_core.errors import AccelError, LaunchError, SettingError
from accel_core.machine.visible_devices import format_visible_devices, parse_visible_devices
from accel_train.launch import command_line, plan
from accel_train.launch.environment import as_deepspeed, as_shell
from accel_train.launch.formats import as_ray, as_slurm
from accel_train.launch.rendezvous import read_rank

# ---------------------------------------------------------------------------- settings
# Whatever stands in the environment: settings, or an error that names the variable.


#: Near what is written, and any text at all.
PART = st.sampled_from(
    [
        *(" ", "\n", "\0", "9" * 400),
        *words("\u0663 \u00b2 \ud800 \x1b[2J npu cuda cpu @ , npu@accel-npu 1 0 true"),
        *words("always isolated 10 2.5 -1 1e400 nan inf 1_0"),
    ]
)
VALUE = st.lists(PART, max_size=4).map("".join) | st.text(max_size=20)
VARIABLES = variables.variables()
NAMES = [variable.name for variable in VARIABLES]
NEARLY = st.sampled_from(["ACCEL_STRIKT", "ACCEL_", "ACCEL_BLOK", "ACCEL_" + "X" * 1000, "accel_strict"])
ENVIRONMENT = st.dictionaries(st.sampled_from(NAMES) | NEARLY, VALUE, max_size=6)


@pytest.mark.parametrize("variable", VARIABLES, ids=NAMES)
@fuzzed(value=VALUE)
def test_a_variable_is_understood_or_an_error_names_it(variable, value):
    try:
        variable.read({variable.name: value})
    except SettingError as error:
        assert variable.name in str(error)


@fuzzed(environ=ENVIRONMENT)
def test_an_environment_is_settings_or_an_error(environ):
    try:
        found = settings.read(environ)
    except SettingError as error:
        assert any(name in str(error) for name in environ)
        return
    assert found.probe_timeout > 0
    assert isinstance(found.permits("npu", "accel-npu"), bool)
    assert {name for name, _ in found.misspelt} <= environ.keys() - set(NAMES)
    for pin in (*found.pins, *found.allow, *found.block):
        assert settings.parse_pin(str(pin)) == pin  # what is shown can be written again


@fuzzed(environ=ENVIRONMENT, rendezvous=st.booleans())
def test_a_rank_is_read_or_an_error_says_why_not(environ, rendezvous):
    try:
        place = read_rank(rendezvous=rendezvous, environ=environ)
    except (LaunchError, SettingError):
        return
    assert 0 <= place.rank < place.world_size


@fuzzed(
    given=st.dictionaries(
        st.from_regex(r"[A-Z_]{1,8}", fullmatch=True), st.text(max_size=20).filter(lambda t: "\0" not in t)
    )
)
def test_variables_for_other_hosts_are_written_or_refused(given):
    written = as_shell({name: _representable(value) for name, value in given.items()})
    assert written.count("export ") >= len(given)
    try:
        lines = as_deepspeed(given).split("\n")
    except LaunchError:
        return
    assert dict(line.split("=", 1) for line in lines if line) == given


@fuzzed(
    given=st.dictionaries(
        st.from_regex(r"[A-Z]{1,4}", fullmatch=True), st.text("aZ09 $/{}:,'\"\\n#é", max_size=9)
    )
)
def test_what_ray_and_slurm_read_is_what_was_given(given):
    with contextlib.suppress(LaunchError):
        read = json.loads(as_ray(given))["env_vars"]
        assert {name: os.path.expandvars(value) for name, value in read.items()} == given
    with contextlib.suppress(LaunchError):
        comment, option = shlex.split(as_slurm(given))  # as sbatch reads a line: with quotes
        whole, *pairs = option.removeprefix("--export=").split(",")
        assert (comment, whole) == ("#SBATCH", "ALL")
        assert dict(pair.split("=", 1) for pair in pairs) == given


def _representable(value):
    """As `os.environ` holds it: bytes that are not UTF-8 are lone surrogates of one kind."""
    return value.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")


# ---------------------------------------------------------------------------- command lines
# Whatever is typed behind `accel`: a call that can be made, or an error in words.


COMMANDS = {name: accel.get_command(click.Context(accel), name) for name in announced()}
PARSED = sorted(set(COMMANDS) - {"run", "deepspeed"})  # those two hand their arguments on
OPTIONS = sorted(
    {option for name in PARSED for parameter in COMMANDS[name].params for option in parameter.opts}
)
WORD = st.sampled_from(
    ["npu", "cpu@accel-core", "@", ",", "", "-", "--", "0", "-1", "1e9", "nan", "x.svg", "/", "a" * 5000]
) | st.text(max_size=8)


@pytest.mark.parametrize("name", PARSED)
@fuzzed(words=st.lists(st.sampled_from(OPTIONS) | WORD, max_size=5))
def test_arguments_are_understood_or_refused(name, words):
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.suppress(click.ClickException, click.exceptions.Exit),
    ):
        COMMANDS[name].make_context(name, list(words))


MACHINE = plan.Machine("cpu", "cpu", "", True, 1, "gloo", ["cpu"], [None], [], "", "")
KNOWN = (*command_line.OPTIONS, *command_line.FLAGS, *command_line.MOST_USED)
RUN = [*KNOWN, *words("-m --run-path --role -r -t")]
COUNT = st.sampled_from(["", "9" * 5000, *words("1 2 0 -1 auto cpu gpu 1:2 2:1 : x 1e3 \u0663 1000000000")])


@pytest.fixture(scope="module")
def torchrun():
    """torchrun's parser: loaded before anything is measured."""
    pytest.importorskip("torch", reason="the options are torchrun's: needs torch")
    importlib.import_module("torch.distributed.run")


@pytest.mark.usefixtures("torchrun")
@fuzzed(
    words=st.lists(
        st.sampled_from(RUN) | COUNT | WORD | st.builds("{}={}".format, st.sampled_from(RUN), COUNT),
        max_size=5,
    )
)
@example(words=["--nproc-per-node", "1000000000"])
@example(words=["--nproc-per-node", "9" * 5000])
def test_a_run_is_planned_or_refused(words):
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
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


# ---------------------------------------------------------------------------- visible devices
# Properties of every visible-devices grammar.


INDEX = st.integers(0, 10**9 - 1)
UUID = st.uuids().map(str)
UNIQUE = {
    "cuda": [
        st.lists(INDEX, unique=True),
        st.lists(UUID.map("GPU-{}".format), unique=True),
        st.lists(UUID.map(lambda u: f"GPU-{u[:8]}"), unique=True),
        st.lists(
            UUID.map("MIG-{}".format) | st.builds("MIG-GPU-{}/{}/{}".format, UUID, INDEX, INDEX), unique=True
        ),
    ],
    "ascending": [st.lists(INDEX, unique=True).map(sorted)],
    "modules": [st.lists(st.integers(0, 7), unique=True, min_size=1)],
    "mlu": [st.lists(INDEX, unique=True), st.lists(UUID, unique=True)],
    "level-zero": [
        st.lists(st.integers(0, 127), unique=True, min_size=1).map(sorted),
        st.lists(st.integers(0, 9).map("0.{}".format), unique=True, min_size=1).map(sorted),
    ],
    "indices": [st.lists(INDEX, unique=True)],
}
#: Text near what people write, and any text at all.
ALMOST = st.lists(
    st.sampled_from(
        ["0", "1", "-1", "+2", "GPU-", "GPU-12ab", "MIG-GPU-1/0/0", "0.1", " ", "x", "٣", "99999999999"]
    ),
    max_size=6,
).map(",".join)
VALUES = st.text() | ALMOST | st.text("0123456789,-. GPUMIabc/")
ITEMS = st.lists(st.integers() | st.text() | st.sampled_from(["0", "GPU-1", "MIG-2", "0.1"]) | st.booleans())


@pytest.mark.parametrize("grammar", GRAMMARS)
@fuzzed(data=st.data())
def test_what_is_written_is_read_back(grammar, data):
    ids = data.draw(st.one_of(UNIQUE[grammar]))
    assert parse_visible_devices(grammar, format_visible_devices(grammar, ids)).ids == tuple(ids)


@pytest.mark.parametrize("grammar", GRAMMARS)
@fuzzed(value=VALUES)
@example(value="\x1d33")  # a blank to str.strip(), and none to int()
def test_any_text_is_read_or_refused(grammar, value):
    try:
        visible = parse_visible_devices(grammar, value)
    except SettingError:
        return
    assert visible.ids is None or len(set(visible.ids)) == len(visible.ids)
    assert all(type(item) in (int, str) for item in visible.ids or ())


@pytest.mark.parametrize("grammar", GRAMMARS)
@fuzzed(ids=ITEMS)
def test_any_ids_are_written_exactly_or_refused(grammar, ids):
    try:
        value = format_visible_devices(grammar, ids)
    except SettingError:
        return
    visible = parse_visible_devices(grammar, value)
    assert sorted(map(str, visible.ids or ())) == sorted(str(parse_number(item)) for item in ids)


def parse_number(item):
    return int(item) if isinstance(item, str) and item.isascii() and item.isdigit() else item
