"""Libraries on a given device: each predicts, and trains a step, as on the CPU."""

from importlib.util import find_spec

import pytest

LIBRARIES = (
    "diffusers", "easyocr", "kornia", "open_clip", "skorch", "timm", "torch_geometric", "torchmetrics",
    "ultralytics",
)  # fmt: skip

#: Errors of TorchTPU 0.2.0 in a library's program.
ON_TORCHTPU = {
    "diffusers": "cannot create a view of shape",
    "easyocr": "host memory allocator is not implemented",
    "kornia": "'aten::linalg_cross.out' is not implemented for TPU",
    "ultralytics": "device_count is internal to TorchTPU",
}


def _needs(*modules):
    missing = [name for name in modules if not find_spec(name)]
    if missing:
        pytest.skip(
            f"{missing} not installed; `./dev recipes` has an environment with them"
        )


def _values(answer):
    return [*answer["predicted"], answer["loss"], *answer["parameters"]]


@pytest.mark.parametrize("library", LIBRARIES)
def test_on_acme_as_on_the_cpu(library, ran):
    _needs("torch")
    ours, cpu = ran(library, "acme"), ran(library, "cpu")
    assert ours["devices"] == ["acme:0"]
    assert cpu["devices"] == ["cpu"]
    assert ours["predicted"] == cpu["predicted"]
    assert ours["loss"] == cpu["loss"]
    # Diffusers' gradients differ in their last bits.
    bound = 1e-7 if library == "diffusers" else 0.0
    assert ours["parameters"] == pytest.approx(cpu["parameters"], rel=0.0, abs=bound)


@pytest.mark.parametrize("library", LIBRARIES)
def test_on_torchtpu_as_on_the_cpu_or_with_its_known_error(library, ran):
    _needs("torch", "torch_tpu", "fastatomstruct_xla_cpu")
    if library in ON_TORCHTPU:
        with pytest.raises(AssertionError, match=ON_TORCHTPU[library]):
            ran(library, "tpu")
        return
    ours, cpu = ran(library, "tpu"), ran(library, "cpu")
    assert ours["devices"] == ["tpu:0"]
    assert cpu["devices"] == ["cpu"]
    assert _values(ours) == pytest.approx(_values(cpu), rel=1e-4, abs=1e-4)
