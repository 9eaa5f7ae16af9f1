"""The operators of the real Intel Extension for DeepSpeed, on a simulated xpu.

`ACCEL_REAL_IDEX` names the folder that it is installed in, as `./dev deepspeed` does. IPEX and oneCCL's
bindings, which it imports, are empty modules here: they fit no torch that has no GPU of Intel's.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

import pytest
from accel_tests import layouts

EXTENSION = os.environ.get("ACCEL_REAL_IDEX", "")
pytestmark = pytest.mark.skipif(
    not EXTENSION, reason="ACCEL_REAL_IDEX names no folder with intel-extension-for-deepspeed"
)
ASK = """
import json
from accel_train.deepspeed import activate
acc = activate().accelerator
import deepspeed
from deepspeed.ops import op_builder
names = ("TransformerBuilder", "InferenceBuilder", "QuantizerBuilder", "UtilsBuilder", "FusedAdamBuilder")
used = {n: acc.operators()[n].used for n in names}
print("ANSWER", json.dumps(dict(
    name=acc.name, same=all(getattr(op_builder, n) is acc.get_op_builder(n) for n in names[:-1]),
    homes={n: acc.get_op_builder(n).__module__ for n in names},
    reasons={n: c.reason for n, c in used.items()},
    listed=[acc.get_op_builder(n).NAME in deepspeed.ops.__compatible_ops__ for n in names],
)), flush=True)
"""


@pytest.fixture
def on_external(tmp_path):
    """Variables of a process with the simulated xpu, the plugin and the extension."""
    from accel_tests.on_disk import install_real_plugin
    from accel_tests.on_simulated import environment

    from accel_simulated import VENDORS, CannotBuildError, build

    try:
        build(VENDORS["xpu"].kind)
    except CannotBuildError as error:
        pytest.skip(str(error))
    install_real_plugin(tmp_path, "xpu")
    fitting = version("torch").partition("+")[0]
    for name in ("intel-extension-for-pytorch", "oneccl-bindings-for-pytorch"):
        layouts.dist_info(tmp_path, name, fitting, {}, {name.replace("-", "_"): ""})
    variables = {"DS_ACCELERATOR": "xpu.external", "OMP_NUM_THREADS": "1"}
    chosen = environment("xpu", variables, path=[tmp_path, Path(EXTENSION)])
    return {name: value for name, value in chosen.items() if name != "TORCH_DEVICE_BACKEND_AUTOLOAD"}


@pytest.mark.parametrize("compiler", [False, True])
def test_its_builders_are_used_where_they_can_be_compiled(child, on_external, tmp_path, compiler):
    if compiler:
        icpx = tmp_path / "bin" / "icpx"
        icpx.parent.mkdir()
        icpx.touch(mode=0o755)
        on_external["PATH"] = f"{icpx.parent}{os.pathsep}{on_external['PATH']}"
    ended = child(["-c", ASK], on_external)
    assert ended.returncode == 0, ended.stderr
    (found,) = ended.answers
    assert (found["name"], found["same"]) == ("xpu.external", True)
    homes = found["homes"]
    own = {
        name for name, home in homes.items() if home.startswith("intel_extension_for_deepspeed.op_builder.")
    }
    only_here = {"TransformerBuilder", "InferenceBuilder", "QuantizerBuilder", "UtilsBuilder"}
    assert own == (only_here | {"FusedAdamBuilder"} if compiler else only_here)
    assert found["listed"] == [True] * 5
    for name in only_here:
        assert found["reasons"][name] == ("" if compiler else found["reasons"]["UtilsBuilder"])
    assert compiler or "the SYCL compiler icpx is not on PATH" in found["reasons"]["UtilsBuilder"]
