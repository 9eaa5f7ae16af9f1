"""The operators of the real Intel Extension for DeepSpeed, on a simulated xpu.

`ACCEL_REAL_IDEX` names the folder in which it is installed, as `./dev deepspeed` does. IPEX and oneCCL's
bindings, which it imports, are empty modules here: no release of them fits a torch without an Intel GPU.
"""

import os
from importlib.metadata import version
from pathlib import Path

import pytest
from accel_tests import layouts
from accel_tests.children import executable
from accel_tests.forks import forked
from looks import activated

EXTENSION = os.environ.get("ACCEL_REAL_IDEX", "")


@pytest.fixture(scope="session")
def on_xpu(simulated, tmp_path_factory):
    """The simulated xpu, the plugin and the extension."""
    folder = tmp_path_factory.mktemp("extension")
    fitting = version("torch").partition("+")[0]
    for name in ("intel-extension-for-pytorch", "oneccl-bindings-for-pytorch"):
        layouts.dist_info(folder, name, fitting, {}, {name.replace("-", "_"): ""})
    return simulated(
        "xpu", folder, Path(EXTENSION), plugin=True, DS_ACCELERATOR="xpu.external"
    )


@pytest.mark.skipif(
    not EXTENSION, reason="ACCEL_REAL_IDEX names no folder with the extension"
)
@pytest.mark.parametrize("compiler", [False, True])
@forked("xpu")
def test_its_builders_are_used_where_they_can_be_compiled(tmp_path, compiler):
    if compiler:
        icpx = executable(tmp_path / "bin" / "icpx")
        os.environ["PATH"] = f"{icpx.parent}{os.pathsep}{os.environ['PATH']}"
    acc = activated()[0].accelerator
    import deepspeed
    from deepspeed.ops import op_builder

    assert acc.name == "xpu.external"
    only_here = {
        "TransformerBuilder",
        "InferenceBuilder",
        "QuantizerBuilder",
        "UtilsBuilder",
    }
    assert all(
        getattr(op_builder, name) is acc.get_op_builder(name) for name in only_here
    )
    kinds = {
        name: acc.get_op_builder(name) for name in (*only_here, "FusedAdamBuilder")
    }
    home = "intel_extension_for_deepspeed.op_builder."
    own = {name for name, kind in kinds.items() if kind.__module__.startswith(home)}
    assert own == (set(kinds) if compiler else only_here)
    assert all(kind.NAME in deepspeed.ops.__compatible_ops__ for kind in kinds.values())
    (reason,) = {acc.operators()[name].used.reason for name in only_here}
    assert reason == "" if compiler else "icpx is missing" in reason
