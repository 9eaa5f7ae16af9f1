"""Whatever a file holds that should be a shared library: its headers, or an error, and at no cost."""

from __future__ import annotations

import itertools
import struct
import sys
from pathlib import Path

import pytest
from accel_testing.fuzzing import fuzzed
from hypothesis import strategies as st

from accel_core.doctor.elf import Elf, architecture, read_elf
from accel_core.doctor.libraries import unmet_needs

_runs = itertools.count()
#: Tags of the dynamic section that are read, and some that are not; numbers at the edges.
TAGS = st.sampled_from([0, 1, 5, 10, 14, 15, 29, 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF, 2, 7])
NUMBER = st.integers(0, 512) | st.sampled_from([2**16 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, 64, 120])


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tmp_path_factory.mktemp("libraries")


@pytest.fixture(scope="module")
def real():
    """The first MiB of this Python's own program or library, which is a real one."""
    data = Path(sys.executable).read_bytes()
    if data[:4] != b"\x7fELF":
        pytest.skip("this system's programs are no ELF files")
    return data[: 1 << 20]


def examined(base: Path, data: bytes) -> None:
    file = base / str(next(_runs))
    file.write_bytes(data)
    try:
        found = read_elf(str(file))
        assert isinstance(found, Elf)
        assert found.architecture == architecture(str(file))
        assert sum(map(len, found.needed)) < 1 << 25
    except (OSError, ValueError) as error:
        assert str(error)
    for unmet in unmet_needs([str(file)], {}, root=str(base)):
        assert unmet.name
        assert unmet.why
    file.unlink()


@fuzzed(data=st.binary(max_size=300) | st.binary(max_size=200).map(b"\x7fELF\x02\x01".__add__))
def test_any_bytes(base, data):
    examined(base, data)


@fuzzed(
    entries=st.lists(st.tuples(TAGS, NUMBER), max_size=12),
    form=st.sampled_from([(2, 1), (2, 2), (1, 1), (1, 2)]),
    offset=NUMBER,
    address=NUMBER,
    size=NUMBER,
    count=st.integers(0, 4) | st.just(65535),
    rest=st.binary(max_size=200),
)
def test_any_dynamic_section(base, entries, form, offset, address, size, count, rest):
    """A file of the right form whose every number may be wrong: offsets, counts, chains that lead back."""
    wide, order = form[0] == 2, "<" if form[1] == 1 else ">"
    word = "Q" if wide else "I"
    most = 2 ** (64 if wide else 32) - 1
    header, width = (64, 56) if wide else (52, 32)
    identity = b"\x7fELF" + bytes(form) + b"\1" + bytes(9)
    if wide:
        fixed = struct.pack(f"{order}HHIQQQIHHHHHH", 3, 62, 1, 0, header, 0, 0, header, width, count, 0, 0, 0)
        row = "IIQQQQQQ"
        values = [
            (kind, 0, at, address, 0, span, span, 0)
            for kind, at, span in ((1, offset, size), (2, header + 2 * width, 16 * len(entries)))
        ]
    else:
        fixed = struct.pack(f"{order}HHIIIIIHHHHHH", 3, 3, 1, 0, header, 0, 0, header, width, count, 0, 0, 0)
        row = "IIIIIIII"
        values = [
            (kind, at, address, 0, span, span, 0, 0)
            for kind, at, span in ((1, offset, size), (2, header + 2 * width, 8 * len(entries)))
        ]
    segments = b"".join(
        struct.pack(f"{order}{row}", *(value & (most if wide else 2**32 - 1) for value in row_))
        for row_ in values
    )
    dynamic = b"".join(struct.pack(f"{order}{word}{word}", tag, value & most) for tag, value in entries)
    examined(base, identity + fixed + segments + dynamic + rest)


@fuzzed(
    changes=st.lists(
        st.tuples(st.integers(0, 4096) | st.integers(0, (1 << 20) - 1), st.integers(0, 255)), max_size=8
    ),
    cut=st.none() | st.integers(0, 1 << 16),
)
def test_a_real_one_with_bytes_changed_or_cut(base, real, changes, cut):
    data = bytearray(real[:cut])
    for at, value in changes:
        if at < len(data):
            data[at] = value
    examined(base, bytes(data))
