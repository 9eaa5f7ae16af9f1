"""Properties of every visible-devices grammar."""

import pytest
from accel_tests.fuzzing import fuzzed
from hypothesis import example
from hypothesis import strategies as st

from accel_core.backend import GRAMMARS
from accel_core.errors import SettingError
from accel_core.hardware.visible_devices import (
    format_visible_devices,
    parse_visible_devices,
)

INDEX = st.integers(0, 10**9 - 1)
UUID = st.uuids().map(str)
UNIQUE = {
    "cuda": [
        st.lists(INDEX, unique=True),
        st.lists(UUID.map("GPU-{}".format), unique=True),
        st.lists(UUID.map(lambda u: f"GPU-{u[:8]}"), unique=True),
        st.lists(
            UUID.map("MIG-{}".format)
            | st.builds("MIG-GPU-{}/{}/{}".format, UUID, INDEX, INDEX),
            unique=True,
        ),
    ],
    "ascending": [st.lists(INDEX, unique=True).map(sorted)],
    "modules": [st.lists(st.integers(0, 7), unique=True, min_size=1)],
    "mlu": [st.lists(INDEX, unique=True), st.lists(UUID, unique=True)],
    "level-zero": [
        st.lists(st.integers(0, 127), unique=True, min_size=1).map(sorted),
        st.lists(st.integers(0, 9).map("0.{}".format), unique=True, min_size=1).map(
            sorted
        ),
    ],
    "indices": [st.lists(INDEX, unique=True)],
    "ranges": [st.lists(INDEX, unique=True)],
}
#: Text near what people write, and any text at all.
ALMOST = st.lists(
    st.sampled_from(
        [
            "0",
            "1",
            "-1",
            "+2",
            "GPU-",
            "GPU-12ab",
            "MIG-GPU-1/0/0",
            "0.1",
            " ",
            "x",
            "٣",
            "99999999999",
        ]
    ),
    max_size=6,
).map(",".join)
VALUES = st.text() | ALMOST | st.text("0123456789,-. GPUMIabc/")
ITEMS = st.lists(
    st.integers()
    | st.text()
    | st.sampled_from(["0", "GPU-1", "MIG-2", "0.1"])
    | st.booleans()
)


@pytest.mark.parametrize("grammar", GRAMMARS)
@fuzzed(data=st.data())
def test_what_is_written_is_read_back(grammar, data):
    ids = data.draw(st.one_of(UNIQUE[grammar]))
    assert parse_visible_devices(
        grammar, format_visible_devices(grammar, ids)
    ).ids == tuple(ids)


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
    assert sorted(map(str, visible.ids or ())) == sorted(
        str(parse_number(item)) for item in ids
    )


def parse_number(item):
    return (
        int(item)
        if isinstance(item, str) and item.isascii() and item.isdigit()
        else item
    )
