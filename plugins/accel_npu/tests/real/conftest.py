"""Children in which the real torch_npu runs: with the stand-in for CANN, and without it."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from stand_in import build  # noqa: E402 - found through the line above, as in the children
from stand_in.children import run  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def _needs_torch_npu():
    if build.torch_npu_folder() is None:
        pytest.skip(
            "torch_npu is not installed; `./dev npu-real` has an environment with it"
        )


@pytest.fixture
def without_cann():
    """`without_cann(code, **variables)`: a child in which CANN's libraries are not found."""
    return run


@pytest.fixture(scope="session")
def stand_in():
    """The folder of the compiled stand-in."""
    return build.built()


@pytest.fixture
def with_cann(stand_in):
    """`with_cann(code, **variables)`: a child in which the stand-in is CANN."""

    def child(code, **variables):
        return run(code, cann=stand_in, **variables)

    return child
