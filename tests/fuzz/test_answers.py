"""Whatever a child process, another rank or a file of ours answers: a record, or an error in words."""

import json
import socket

import pytest
from accel_tests.fuzzing import fuzzed
from accel_tests.tools import words
from hypothesis import example
from hypothesis import strategies as st

from accel_core._support import child
from accel_core.errors import clean, printable
from accel_tools.bench import document
from accel_train.launch import agreement
from accel_train.launch.line import Line

TEXT = st.text(max_size=12) | st.sampled_from(words("stage answer status reason seconds \ud800 \x1b]0;x\x07"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=8,
)
WRITTEN = (
    JSON.map(json.dumps)
    | st.text(max_size=30)
    | st.sampled_from(["[" * 100_000, "1" * 5000, '{"a":' * 5000, "NaN", '{"stage": 1e999}', "\ufeff{}"])
)
BYTES = WRITTEN.map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=40)
NONCE = "0123456789abcdef"


@fuzzed(lines=st.lists(st.tuples(st.sampled_from(["", "x", f"{NONCE}x"]), WRITTEN), max_size=5))
def test_only_lines_with_the_nonce_are_a_childs_and_one_that_is_cut_is_none(lines):
    text = "\n".join(f"{mark} {said}" for mark, said in lines)
    own = f'{NONCE} {{"stage": "at work"}}'
    assert child._lines(f"{text}\n{own}\n{own[:-3]}", NONCE) == [{"stage": "at work"}]


RECORD = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(agreement.Record._fields, JSON),
        "rank": st.integers(-1, 3) | JSON,
        "host": TEXT | JSON,
        "unknown": JSON,
        "others": st.dictionaries(TEXT, TEXT, max_size=2) | JSON,
        "addresses": st.lists(TEXT, max_size=2) | JSON,
    },
)


@fuzzed(data=BYTES | RECORD.map(json.dumps).map(str.encode), rank=st.integers(0, 2))
def test_what_a_rank_leaves_is_a_record(data, rank):
    record = agreement.Record.read(rank, data)
    assert record.rank == rank
    cleaned = agreement._cleaned(record)
    said = (
        agreement._problems([cleaned])
        + agreement._differences([agreement.Record(9, "here", "npu"), cleaned])
        + str(cleaned)
    )
    assert printable(said) == said


@fuzzed(
    data=BYTES
    | st.fixed_dictionaries({}, optional=dict.fromkeys(agreement._VERDICT, JSON))
    .map(json.dumps)
    .map(str.encode)
)
def test_what_rank_0_publishes_is_a_verdict_or_an_error(data):
    try:
        verdict = agreement._verdict(data)
    except ValueError as error:
        assert str(error)
        return
    assert isinstance(verdict["error"], str)


@fuzzed(data=st.lists(BYTES, max_size=4).map(b"\n".join))
def test_what_comes_over_a_line_is_messages_or_its_end(data):
    ours, theirs = socket.socketpair()
    line = Line(ours)
    line.rank = 1
    theirs.setblocking(True)
    theirs.settimeout(5)
    sent = data[: 1 << 16] + b"\n"
    theirs.sendall(sent)
    theirs.close()
    for word, _ in line.hear():
        assert isinstance(word, str)
    assert line.end
    line.close()


ENTRY = dict.fromkeys(("value", "best", "seconds", "spread", "repeats", "calls", "work"), 1)
ENTRY |= {"name": "copy", "title": "Copy", "outcome": "measured", "unit": "B/s"}
ENTRY |= {"size": "1", "note": "", "reason": ""}
DOCUMENT = {"document": "accel bench", "schema": 1, "time": "t", "seconds": 1.0, "quick": False}
DOCUMENT |= {"machine": {}, "accelerator": {}, "measurements": [ENTRY]}


def like(one, **forms):
    """A dictionary as that one, and what may stand in it otherwise."""
    return st.fixed_dictionaries({**{name: st.just(value) for name, value in one.items()}, **forms})


NUMBER = st.none() | st.floats(0)
MEASUREMENT = like(
    ENTRY,
    **dict.fromkeys(("size", "note", "reason"), TEXT),
    **dict.fromkeys(("best", "seconds", "spread"), NUMBER),
    **dict.fromkeys(("repeats", "calls"), JSON),
    outcome=st.sampled_from(["measured", "failed"]),
    value=st.none() | st.floats(0, allow_nan=False) | st.integers(0),
    work=st.none() | st.integers(0),
)
RUN = like(
    DOCUMENT,
    **dict.fromkeys(("machine", "accelerator"), st.dictionaries(TEXT, JSON, max_size=2)),
    time=TEXT,
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


@fuzzed(before=BYTES | RUN.map(json.dumps).map(str.encode), now=RUN.map(json.dumps).map(str.encode))
@example(before=run(1e-320), now=run(1e308))
@example(before=run(1e308), now=run(1e-320))
@example(before=run(10**400), now=run(1))
def test_two_documents_are_compared_or_refused(file, before, now):
    runs = []
    for data in (before, now):
        file.write_bytes(data)
        try:
            runs.append(document.read(file))
        except ValueError as error:
            assert str(error)
            return
    for change in document.compare(runs[0].measurements, runs[1].measurements):
        assert change.to_dict()["verdict"] in ("faster", "slower", "same")
        json.dumps(change.to_dict(), allow_nan=False)
    assert all(document.differences(*runs))


@fuzzed(text=st.text() | st.text("\x1b\x07\r\n\t \x85\u2028\u202e\ud800a"))
def test_no_text_of_others_obeys_a_terminal(text):
    assert clean(text).isprintable()
    assert all(c.isprintable() or c in "\n\t" for c in printable(text))
