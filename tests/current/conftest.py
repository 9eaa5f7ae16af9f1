import pytest


@pytest.fixture
def rivals(torch_world):
    """A machine where two distributions bring a backend of one name."""
    for distribution in ("accel-npu", "better-npu"):
        torch_world.backend("npu", distribution=distribution)
    return torch_world
