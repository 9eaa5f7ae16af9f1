"""Gloo computes tensors on simulated CUDA devices over host memory, as CUDA builds of torch do."""

import pytest

CODE = """
import json, torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
device = torch.device("cuda", rank)
torch.cuda.set_device(device)
told = {}

def ones(of=device):
    return torch.full((2,), rank + 1.0, device=of)

def told_of(name, tensor):
    told[name] = [str(tensor.device.type), tensor.tolist()]

for name in ("SUM", "AVG", "MAX"):
    value = ones()
    dist.all_reduce(value, getattr(dist.ReduceOp, name))
    told_of(name, value)
value = ones()
work = dist.all_reduce(value, async_op=True)
work.wait()
told_of("later", value)
late = torch.zeros(2, device=device)
late.copy_(ones("cpu").pin_memory(), non_blocking=True)
dist.all_reduce(late)
told_of("after a late copy", late)
part = torch.empty(1, device=device)
dist.reduce_scatter_tensor(part, ones())
told_of("reduce_scatter", part)
parts = torch.empty(4, device=device)
dist.all_gather_into_tensor(parts, ones())
told_of("all_gather", parts)
value = ones("cpu")
dist.all_reduce(value)
told_of("on the host", value)
layer = torch.nn.Linear(2, 1, bias=False, device=device)
model = torch.nn.parallel.DistributedDataParallel(layer, device_ids=[rank])  # kept: it averages in `backward`
model(ones()).sum().backward()
told_of("averaged gradient", layer.weight.grad[0])
print(json.dumps(told))
dist.destroy_process_group()
"""
SUM = ["cuda", [3.0, 3.0]]


@pytest.mark.parametrize("vendor", ["cuda", "klxpu"])
def test_gloo_takes_tensors_on_the_device(vendor, simulated):
    for told in simulated(vendor, CODE, processes=2).answers:
        assert told == {
            "SUM": SUM,
            "AVG": ["cuda", [1.5, 1.5]],
            "MAX": ["cuda", [2.0, 2.0]],
            "later": SUM,
            "after a late copy": SUM,
            "reduce_scatter": ["cuda", [3.0]],
            "all_gather": ["cuda", [1.0, 1.0, 2.0, 2.0]],
            "on the host": ["cpu", [3.0, 3.0]],
            "averaged gradient": ["cuda", [1.5, 1.5]],
        }
