"""The file of `accel env --format transformers-spec`, read by Transformers itself on acme."""

import pytest

for package in ("sentence_transformers", "torch", "transformers"):
    pytest.importorskip(package)


#: As `transformers.testing_utils` is used by each of their tests.
SCRIPT = """
import json, os, subprocess, sys
from pathlib import Path

command = [sys.executable, "-m", "accel_core", "env", "--format", "transformers-spec"]
spec = subprocess.run(command, capture_output=True, text=True, check=True).stdout
Path("accel_spec.py").write_text(spec, "utf-8")
os.environ["TRANSFORMERS_TEST_DEVICE_SPEC"] = "accel_spec.py"
sys.path.insert(0, os.getcwd())  # as pytest's folder; they append it too

import torch
from transformers import testing_utils as theirs

device = theirs.torch_device
drawn = []
for _ in range(2):
    theirs.backend_manual_seed(device, 7)
    drawn.append(torch.rand(3, device=device).tolist())
theirs.backend_empty_cache(device)
print(json.dumps({
    "device": device, "drawn": drawn, "count": theirs.backend_device_count(device),
    "sum": torch.ones(4, device=device).sum().item(),
}))
"""


def test_transformers_tests_run_run_on_acme(run_on_acme, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # The device has a generator of its own here, which their seed must reach.
    answer = run_on_acme(SCRIPT, environ={"ACCEL_SIMULATE_RANDOM": ""}).answer
    assert answer == {
        "device": "acme",
        "drawn": answer["drawn"][:1] * 2,
        "count": 2,
        "sum": 4,
    }
