"""Whatever stands in the metadata of a distribution: it is read as importlib reads it, or passed over."""

from __future__ import annotations

import importlib
import itertools
import shutil
import sys

import pytest
from accel_testing.fuzzing import fuzzed
from accel_testing.layouts import GROUP
from accel_testing.scanning import STANDARD, oracle, ours
from hypothesis import assume, example
from hypothesis import strategies as st

from accel_core._support import torch_import
from accel_core.detection import entry_points
from accel_core.detection.discovery import discover

_runs = itertools.count()

LINE = st.one_of(
    st.sampled_from(
        [
            f"[{GROUP}]",
            "[other]",
            "[]",
            "[",
            "]",
            f"[{GROUP}",
            f"[[{GROUP}]]",
            f" [{GROUP}] ",
            "npu = accel_fuzz",
            "npu=accel_fuzz:x [extra]",
            "= accel_fuzz",
            "npu =",
            "# npu = x",
            "; c",
            "a = b = c",
            "npu = .x",
            "npu = a..b",
            "npu = a:b:c",
            "npu = :x",
            "npu = \0",
            "\ufeff",
        ]
    ),
    st.text(max_size=30),
)
FILE = st.lists(LINE, max_size=12).map("\n".join).map(lambda text: text.encode("utf-8", "surrogatepass"))
BYTES = (
    FILE
    | st.binary(max_size=200)
    | st.builds(bytes.__add__, st.just(f"[{GROUP}]\nnpu = accel_fuzz\n".encode()), st.binary(max_size=60))
)
METADATA = st.lists(
    st.sampled_from(
        [
            "Name: accel-fuzz",
            "Name:",
            "Name",
            "Version: 1",
            "Version: \x1b[2J",
            " folded",
            "",
            "Name: \ud800",
            ":",
            "name: x\x85y",
        ]
    )
    | st.text(max_size=20),
    max_size=6,
).map("\n".join).map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=100)
FOLDER = st.sampled_from(
    [
        "accel_fuzz-1.dist-info",
        "accel_fuzz.dist-info",
        "-.dist-info",
        ".dist-info",
        "A--b-1.egg-info",
        "x-1-2-3.DIST-INFO",
    ]
)
#: What torch's version file is read for, and what else may stand there.
VERSION = st.lists(
    st.sampled_from(
        [
            "__version__ = '2.13.0'",
            "cuda: Optional[str] = None",
            "hip = '6'",
            "xpu = 1",
            "cuda = '12' + ''",
            "import os",
            "x = (",
            "\ufeff",
            "# coding: nonsense",
            "a.b = c[0] = '1'",
            "__version__ = b'2'",
        ]
    )
    | st.text(max_size=20),
    max_size=6,
).map("\n".join).map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=60)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tmp_path_factory.mktemp("site")


def installed(base, folder, listed, metadata):
    """A folder for `sys.path` that holds one distribution."""
    site = base / str(next(_runs))
    home = site / folder
    home.mkdir(parents=True)
    (home / "entry_points.txt").write_bytes(listed)
    (home / "METADATA").write_bytes(metadata)
    return site


@fuzzed(folder=FOLDER, listed=BYTES, metadata=METADATA)
def test_any_metadata_is_read_or_passed_over(base, monkeypatch, folder, listed, metadata):
    site = installed(base, folder, listed, metadata)
    monkeypatch.setattr(sys, "path", [str(site), *STANDARD])
    monkeypatch.setattr(entry_points, "_memo", {})
    for found in entry_points.scan(GROUP).entry_points:
        assert all(
            isinstance(part, str) for part in (found.name, found.value, found.distribution, found.version)
        )
    for candidate in discover():
        assert candidate.name is not None
        assert str(candidate)
    shutil.rmtree(site)


@fuzzed(listed=FILE)
def test_entry_points_are_those_that_importlib_gives(base, monkeypatch, listed):
    site = installed(base, "accel_fuzz-1.dist-info", listed, b"Name: accel-fuzz\nVersion: 1\n")
    monkeypatch.setattr(sys, "path", [str(site), *STANDARD])
    importlib.invalidate_caches()
    try:
        expected = oracle()
    except Exception:  # what importlib cannot read it reads for nobody
        assume(False)
    monkeypatch.setattr(entry_points, "_memo", {})
    assert ours() == expected
    shutil.rmtree(site)


@fuzzed(written=VERSION)
@example(written=b"x = " + b"(" * 50_000 + b")" * 50_000)
@example(written=b"x = " + b"-" * 200_000 + b"1")
@example(written=b"x = 1" + b"+1" * 50_000)
def test_any_version_file_of_torch_is_read_or_passed_over(base, written):
    file = base / f"{next(_runs)}.py"
    file.write_bytes(written)
    for name, value in torch_import._assignments(str(file)).items():
        assert isinstance(name, str)
        assert isinstance(value, str)
    file.unlink()
