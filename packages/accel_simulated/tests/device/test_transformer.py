"""A transformer block trains on every simulated device: forward, backward and compiled, as on the CPU."""

from pathlib import Path

import pytest

from accel_simulated import OWN_DEVICES

#: By day a device of torch's own types, and one that uses PrivateUse1.
BY_DAY = ("acme", "cuda")
NIGHT = pytest.mark.nightly(
    reason="compiles a network on each device; by day on two kinds of device"
)
PROGRAM = Path(__file__).with_name("programs") / "transformer_block.py"


@pytest.mark.parametrize(
    "vendor",
    [pytest.param(name, marks=() if name in BY_DAY else NIGHT) for name in OWN_DEVICES],
)
def test_a_block_of_a_transformer_trains(vendor, simulated):
    package = OWN_DEVICES[vendor].package
    # Inductor supports a simulated PrivateUse1; for torch's own device types it needs Triton or Metal.
    compiler = "accel" if OWN_DEVICES[vendor].kind == "PrivateUse1" else "aot_eager"
    run = simulated(vendor, PROGRAM, vendor, package, compiler, timeout=300)
    differences = run.answer
    assert differences.keys() == {"causal", "with a mask", "compiled"}
    assert all(difference < 1e-6 for difference in differences.values()), differences
    # If torch's profiler cannot time the device, it prints its stack.
    assert "frame #" not in run.ended[0].stderr
