"""A model that torch.compile compiles, in the staged process group."""

from importlib.util import find_spec

import pytest
from accel_tests.children import clean_environment, run_python

#: Batch norm has buffers, which DistributedDataParallel broadcasts in its forward pass.
TRAINING = """
import torch
import torch.distributed as dist
from accel_core import get_accelerator
from accel_train.staged import register

register(get_accelerator())
dist.init_process_group("staged", store=dist.HashStore(), rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.BatchNorm1d(3))
torch.compile(model, backend="eager")(torch.ones(2, 3)).sum().backward()
print(model.module.bias.grad.tolist())
dist.destroy_process_group()
"""


@pytest.mark.skipif(not find_spec("torch"), reason="torch trains")
def test_a_compiled_data_parallel_model_calls_the_group():
    environ = clean_environment(DS_ACCELERATOR="cpu")
    done = run_python(["-c", TRAINING], environ).succeeded()
    assert done.stdout.strip() == "[2.0, 2.0, 2.0]"
