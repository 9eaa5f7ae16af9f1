"""The detector attributes a call to the user's code, to torch or a vendor, or to code that forwards it."""

import os
import sys
from pathlib import Path
from types import FrameType

import pytest

from accel_simulated.detector import attribution
from accel_simulated.detector.attribution import Owner

ROOT = Path(__file__).parents[4]


PYTHON = Path(os.__file__).parent


SITE = "/venv/lib/python3.12/site-packages"


def _called_from(file, name, inner, **spec):
    """What `inner` gives when it is called by code of that file and module."""
    code = compile("found = inner()", file, "exec")
    values = {"__name__": name, "inner": inner, **spec}
    exec(code, values)
    return values["found"]


@pytest.mark.parametrize(
    ("file", "module", "whose"),
    [
        ("/home/me/train.py", "__main__", Owner.USER),
        (f"{SITE}/accelerate/state.py", "accelerate.state", Owner.USER),
        # Named as a package of torch's, or as Python's own: the user's all the same.
        ("/home/me/torch.py", "train", Owner.USER),
        ("/home/me/cuda/test.py", "test", Owner.USER),
        (f"{PYTHON}/site-packages/lib/a.py", "lib.a", Owner.USER),
        (f"{PYTHON}/contextlib.py", "contextlib", Owner.FORWARDER),
        ("<string>", "__main__", Owner.FORWARDER),
        (f"{SITE}/_pytest/monkeypatch.py", "_pytest.monkeypatch", Owner.FORWARDER),
        (f"{SITE}/pytest_mock/plugin.py", "pytest_mock.plugin", Owner.FORWARDER),
        # As execnet runs it.
        (f"{SITE}/xdist/remote.py", "__channelexec__", Owner.FORWARDER),
        (f"{SITE}/torch/nn/modules/module.py", "torch.nn.modules.module", Owner.VENDOR),
        ("/src/torch/torch/cuda/__init__.py", "torch.cuda", Owner.VENDOR),
        (f"{SITE}/torch_npu/npu/utils.py", "torch_npu.npu.utils", Owner.VENDOR),
        ("/src/accel_cuda/accelerator.py", "accel_cuda.accelerator", Owner.VENDOR),
        (str(ROOT / "src/accel_core/current.py"), "accel_core.current", Owner.VENDOR),
    ],
)  # fmt: skip
def test_the_owner_of_a_file(file, module, whose):
    assert (
        _called_from(file, module, lambda: attribution.find_owner(sys._getframe(1)))
        == whose
    )


def test_the_users_frame_is_found_behind_code_that_forwards_a_call():
    def place():
        return attribution.nearest_user_frame(sys._getframe(1))

    def through(file, name):
        return _called_from(
            "/home/me/train.py", "train", lambda: _called_from(file, name, place)
        )

    found = through(f"{PYTHON}/functools.py", "functools")
    assert isinstance(found, FrameType)
    # This test's own lambda stands between.
    assert found.f_code.co_filename == __file__
    assert through("/x/site-packages/torch/random.py", "torch.random") is None
