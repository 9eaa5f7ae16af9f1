"""The file of `accel env --format transformers-spec`: by it Transformers' tests find the real TorchTPU."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tpu_card import variables

SCRIPT = """
import json
import torch
from transformers import testing_utils as theirs

device = theirs.torch_device
drawn = []
for _ in range(2):
    theirs.backend_manual_seed(device, 7)
    drawn.append(torch.rand(3, device=device).tolist())
theirs.backend_empty_cache(device)
print(json.dumps([device, theirs.backend_device_count(device), drawn]))
"""


def test_transformers_tests_run_on_tpu(tmp_path):
    pytest.importorskip("transformers")

    def child(*arguments: str, **more: str) -> str:
        command, environ = [sys.executable, *arguments], {**variables(), **more}
        done = subprocess.run(
            command, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    spec = child("-m", "accel_core", "env", "tpu", "--format", "transformers-spec")
    (tmp_path / "accel_spec.py").write_text(spec, "utf-8")
    said = child("-c", SCRIPT, TRANSFORMERS_TEST_DEVICE_SPEC="accel_spec.py").strip().splitlines()[-1]
    device, count, (first, second) = json.loads(said)
    assert (device, count) == ("tpu", 1)
    assert first == second
