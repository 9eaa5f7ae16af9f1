"""Each model family of Transformers imports on each simulated device, as on the CPU."""

import functools
import json
import subprocess
import sys

import pytest
from accel_tests.on_simulated import run_on

from accel_simulated import VENDORS

pytest.importorskip("transformers")
pytestmark = pytest.mark.nightly(
    reason="imports a thousand modules for each vendor: minutes"
)

IMPORT_ALL = """
import importlib, json, pathlib, warnings
import torch, transformers.models

warnings.simplefilter("ignore")
folder = pathlib.Path(transformers.models.__file__).parent
failed, imported = {}, 0
for file in sorted(folder.glob("*/modeling_*.py")):
    name = f"transformers.models.{file.parent.name}.{file.stem}"
    try:
        importlib.import_module(name)
        imported += 1
    except ImportError as error:
        failed[name] = str(error)
print(json.dumps([imported, failed]))
"""


@functools.cache
def on_the_cpu():
    command = [sys.executable, "-c", IMPORT_ALL]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("vendor", VENDORS)
def test_every_model_family_imports(vendor):
    imported, failed = run_on(vendor, IMPORT_ALL, timeout=900).answer
    assert imported > 400
    assert [imported, failed] == on_the_cpu()
