"""Whatever another rank or a file of ours answers: a record, or an error in words."""

import json

import pytest
from accel_tests.fuzzing import fuzzed
from accel_tests.tools import words
from hypothesis import example
from hypothesis import strategies as st

from accel_core.text import escape_control_chars, one_line
from accel_tools.bench import document

WORDS = st.text(max_size=12) | st.sampled_from(
    words("stage answer status reason seconds \ud800 \x1b]0;x\x07")
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4)
    ),
    max_leaves=8,
)
WRITTEN = (
    JSON.map(json.dumps)
    | st.text(max_size=30)
    | st.sampled_from(
        [
            "[" * 100_000,
            "1" * 5000,
            '{"a":' * 5000,
            "NaN",
            '{"stage": 1e999}',
            "\ufeff{}",
        ]
    )
)
BYTES = WRITTEN.map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(
    max_size=40
)
ENTRY = dict.fromkeys(
    ("value", "best", "seconds", "spread", "repeats", "calls", "work"), 1
)
ENTRY |= {"name": "copy", "title": "Copy", "outcome": "measured", "unit": "B/s"}
ENTRY |= {"size": "1", "note": "", "reason": ""}
DOCUMENT = {
    "document": "accel bench",
    "schema": 1,
    "time": "t",
    "seconds": 1.0,
    "quick": False,
}
DOCUMENT |= {"machine": {}, "accelerator": {}, "measurements": [ENTRY]}


def like(one, **forms):
    """A dictionary as that one, and what may stand in it otherwise."""
    return st.fixed_dictionaries(
        {**{name: st.just(value) for name, value in one.items()}, **forms}
    )


NUMBER = st.none() | st.floats(0)
MEASUREMENT = like(
    ENTRY,
    **dict.fromkeys(("size", "note", "reason"), WORDS),
    **dict.fromkeys(("best", "seconds", "spread"), NUMBER),
    **dict.fromkeys(("repeats", "calls"), JSON),
    outcome=st.sampled_from(["measured", "failed"]),
    value=st.none() | st.floats(0, allow_nan=False) | st.integers(0),
    work=st.none() | st.integers(0),
)
RUN = like(
    DOCUMENT,
    **dict.fromkeys(
        ("machine", "accelerator"), st.dictionaries(WORDS, JSON, max_size=2)
    ),
    time=WORDS,
    seconds=st.floats(),
    quick=st.booleans(),
    measurements=st.lists(MEASUREMENT | JSON, max_size=2),
)


def run(value):
    entry = {**ENTRY, "value": value, "best": value}
    return json.dumps({**DOCUMENT, "measurements": [entry]}).encode()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("documents") / "before.json"


@fuzzed(
    before=BYTES | RUN.map(json.dumps).map(str.encode),
    now=RUN.map(json.dumps).map(str.encode),
)
@example(before=run(1e-320), now=run(1e308))
@example(before=run(1e308), now=run(1e-320))
@example(before=run(10**400), now=run(1))
def test_two_documents_are_compared_or_refused(file, before, now):
    runs = []
    for data in (before, now):
        file.write_bytes(data)
        try:
            runs.append(document.read_run(file))
        except ValueError as error:
            assert str(error)
            return
    for change in document.find_changes(runs[0].measurements, runs[1].measurements):
        assert change.to_dict()["verdict"] in ("faster", "slower", "same")
        json.dumps(change.to_dict(), allow_nan=False)
    assert all(document.find_differences(*runs))


@fuzzed(text=st.text() | st.text("\x1b\x07\r\n\t \x85\u2028\u202e\ud800a"))
def test_no_text_of_others_obeys_a_terminal(text):
    assert one_line(text).isprintable()
    assert all(c.isprintable() or c in "\n\t" for c in escape_control_chars(text))
