"""Whatever a configuration file holds: settings, or an error that names the file, and never a long wait."""

from __future__ import annotations

import itertools

import pytest
from accel_testing.fuzzing import fuzzed
from hypothesis import example
from hypothesis import strategies as st

from accel_core import configuration, settings
from accel_core.configuration import Found
from accel_core.configuration.file import read
from accel_core.errors import SettingError

_runs = itertools.count()
KEYS = {variable.key: variable for variable in settings._IN_FILES}

LINE = st.one_of(
    st.builds(
        "{} = {}".format,
        st.sampled_from([*KEYS, "lock", "locks", "unknown", '"block"', "a.b", "block.x"]),
        st.sampled_from(
            [
                "1",
                "true",
                '"npu"',
                '["npu", "cuda"]',
                "[]",
                "[[1]]",
                "{}",
                "1e400",
                "nan",
                "inf",
                "9" * 5000,
                '""',
                '"always"',
                '"\\u0000"',
                '["block"]',
                "1979-05-27",
                '"""\n[\n"""',
                "0x10",
                '"a,b"',
                '["a,b"]',
                "'@'",
                '"npu@"',
                "-1",
                "[" * 200,
            ]
        ),
    ),
    st.sampled_from(
        [
            "[tool.accel]",
            "[tool]",
            "[ tool . 'accel' ]",
            "[[tool.accel]]",
            "[",
            "]",
            "# x",
            "",
            "   ",
            "[a]]",
            "[]",
        ]
    ),
    st.sampled_from(["tool = { accel = {} }", "tool.accel.block = []", "'tool' . \"accel\" . x = 1"]),
    st.text(max_size=15),
)
CONTENT = st.lists(LINE, max_size=8).map("\n".join).map(lambda text: text.encode("utf-8", "surrogatepass"))
LEVEL = st.sampled_from(["site", "environment", "user", "project", "named"])
WIDE = b'block = ["npu"]\ntext = """\n[' + b" " * 100_000 + b'x\n"""\n'


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tmp_path_factory.mktemp("configured")


@fuzzed(
    content=CONTENT | st.binary(max_size=60),
    level=LEVEL,
    name=st.sampled_from(["accel.toml", "pyproject.toml"]),
)
@example(content=WIDE, level="user", name="accel.toml")
@example(content=b"x = " + b"[" * 100_000, level="user", name="accel.toml")
def test_a_file_is_settings_or_an_error_that_names_it(base, content, level, name):
    folder = base / str(next(_runs))
    folder.mkdir()
    path = folder / name
    path.write_bytes(content)
    try:
        file = read(Found(level, str(path)), KEYS)
    except SettingError as error:
        assert str(path) in str(error)
        return
    assert file.locks.keys() <= file.values.keys() <= KEYS.keys()
    for key, value in file.values.items():
        KEYS[key].read({KEYS[key].name: value.text})  # what a file says a variable can say


@fuzzed(content=CONTENT)
@example(content=b"[[tool.accel]]")
@example(content=b"tool = { accel = { block = ['npu'] } }")
@example(content=b"accel" + b"\n" * 100_000 + b"x")
@example(content=b"accel\n" + b" " * 500_000 + b"x")
@example(content=b"accel\n[" + b"\t" * 500_000 + b"x")
def test_a_project_speaks_to_us_where_a_parser_of_toml_says_so(base, content):
    path = base / str(next(_runs))
    path.write_bytes(content)
    mentioned = configuration._mentions_us(str(path))
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has none")
    try:
        tool = tomllib.loads(content.decode()).get("tool", {})
    except (ValueError, RecursionError):
        return
    if isinstance(tool, dict) and "accel" in tool:
        assert mentioned


@fuzzed(
    files=st.lists(st.tuples(LEVEL, CONTENT), max_size=3),
    environ=st.dictionaries(
        st.sampled_from([v.name for v in settings.VARIABLES]),
        st.sampled_from(["npu", "cuda,cpu", "1", "", "isolated", "x" * 50]),
        max_size=3,
    ),
)
@example(files=[("user", b'block = ["npu"]')], environ={"ACCEL_STRICT": "npu"})
def test_levels_are_one_environment_or_an_error(base, files, environ):
    from accel_core.configuration.layers import layered

    found = []
    for level, content in files:
        path = base / f"{next(_runs)}.toml"
        path.write_bytes(content)
        found.append(Found(level, str(path)))
    try:
        layers = layered(found, environ, settings._IN_FILES)
    except SettingError as error:
        assert str(error)
        return
    assert environ.keys() <= layers.environ.keys()
    assert all(isinstance(note, str) for note in layers.notes)
