"""bitsandbytes on `acme`: a supported device, with its kernels in plain torch."""

import pytest

pytest.importorskip("torch")


SCRIPT = """
import json, warnings
import bitsandbytes, torch
from bitsandbytes import functional

def quantized(device):
    torch.manual_seed(0)
    packed, state = functional.quantize_4bit(torch.randn(64, 64).to(device), quant_type="nf4")
    layer = bitsandbytes.nn.Linear4bit(64, 64, compute_dtype=torch.float32).to(device)
    result = layer(torch.ones(2, 64, device=device))
    return [t.detach().cpu().tolist() for t in (packed, functional.dequantize_4bit(packed, state), result)]

here = torch.accelerator.current_accelerator()
print()
print(json.dumps({
    "chosen by the import": "supported_torch_devices" in vars(bitsandbytes),
    "supported": sorted(bitsandbytes.supported_torch_devices),
    "equal": here and quantized(here) == quantized("cpu"),
}))
"""


def test_four_bits_equal_the_cpus(beside):
    answer = beside("bitsandbytes", SCRIPT).answer
    assert answer["chosen by the import"] is False
    assert "acme" in answer["supported"]
    assert answer["equal"]


def test_an_error_is_a_warning_and_the_import_goes_on(beside):
    environ = {"DS_ACCELERATOR": "nothing", "PYTHONWARNINGS": "error::RuntimeWarning"}
    run = beside("bitsandbytes", SCRIPT, environ=environ)
    assert "acme" not in run.answer["supported"]
    assert (
        "bitsandbytes cannot use accel's accelerator: BackendNotFoundError"
        in run.ended[0].stderr
    )
