"""Finding the package of this folder, and what its tests share."""

import importlib.util
from pathlib import Path

import pytest
from accel_tests.tools import TREE

# The documents are no part of an sdist, `tomllib` none of Python 3.10; torchrun's own parser needs torch.
ALL_HERE = (TREE / "docs").is_dir() and all(
    map(importlib.util.find_spec, ("tomllib", "torch"))
)
collect_ignore_glob = [] if ALL_HERE else ["test_*.py"]


@pytest.fixture(scope="session")
def known():
    from accel_truth.known import Known

    return Known(TREE)


@pytest.fixture
def outside():
    """Read anew for each test, as it notes which of its names were used."""
    from accel_truth.judge import Outside

    return Outside(Path(__file__).with_name("outside.toml").read_text(encoding="utf-8"))


@pytest.fixture
def judge(known, outside):
    from accel_truth.judge import Judge

    return Judge(known, outside)
