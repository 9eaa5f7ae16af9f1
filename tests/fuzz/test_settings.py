"""Whatever stands in the environment: settings, or an error that names the variable."""

import contextlib
import json
import os
import shlex

import pytest
from accel_tests import variables
from accel_tests.fuzzing import fuzzed
from accel_tests.tools import words
from hypothesis import strategies as st

from accel_core import settings
from accel_core.errors import LaunchError, SettingError
from accel_train.launch.environment import as_deepspeed, as_shell
from accel_train.launch.formats import as_ray, as_slurm
from accel_train.launch.rendezvous import read_rank

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
NEARLY = st.sampled_from(
    ["ACCEL_STRIKT", "ACCEL_", "ACCEL_BLOK", "ACCEL_" + "X" * 1000, "accel_strict"]
)
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
        # What is shown can be written again.
        assert settings.parse_pin(str(pin), allow_distribution_only=True) == pin


@fuzzed(environ=ENVIRONMENT, needs_address=st.booleans())
def test_a_rank_is_read_or_an_error_says_why_not(environ, needs_address):
    try:
        place = read_rank(needs_address=needs_address, environ=environ)
    except (LaunchError, SettingError):
        return
    assert 0 <= place.rank < place.world_size


@fuzzed(
    given=st.dictionaries(
        st.from_regex(r"[A-Z_]{1,8}", fullmatch=True),
        st.text(max_size=20).filter(lambda t: "\0" not in t),
    )
)
def test_variables_for_other_hosts_are_written_or_refused(given):
    # As `os.environ` holds it: bytes that are not UTF-8 are lone surrogates of one kind.
    held = {
        name: value.encode("utf-8", "surrogatepass") for name, value in given.items()
    }
    written = as_shell(
        {name: value.decode("utf-8", "surrogateescape") for name, value in held.items()}
    )
    assert written.count("export ") >= len(given)
    try:
        lines = as_deepspeed(given).split("\n")
    except LaunchError:
        return
    assert dict(line.split("=", 1) for line in lines if line) == given


@fuzzed(
    given=st.dictionaries(
        st.from_regex(r"[A-Z]{1,4}", fullmatch=True),
        st.text("aZ09 $/{}:,'\"\\n#é", max_size=9),
    )
)
def test_what_ray_and_slurm_read_is_what_was_given(given):
    with contextlib.suppress(LaunchError):
        read = json.loads(as_ray(given))["env_vars"]
        assert {
            name: os.path.expandvars(value) for name, value in read.items()
        } == given
    with contextlib.suppress(LaunchError):
        comment, option = shlex.split(
            as_slurm(given)
        )  # as sbatch reads a line: with quotes
        whole, *pairs = option.removeprefix("--export=").split(",")
        assert comment == "#SBATCH"
        assert whole == "ALL"
        assert dict(pair.split("=", 1) for pair in pairs) == given
