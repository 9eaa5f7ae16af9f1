"""Call gloo with tensors on a simulated CUDA device, and print the results by case."""

import json

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
device = torch.device("cuda", rank)
torch.cuda.set_device(device)
results = {}


def ones(of=device):
    return torch.full((2,), rank + 1.0, device=of)


def record(name, tensor):
    results[name] = [str(tensor.device.type), tensor.tolist()]


for name in ("SUM", "AVG", "MAX"):
    value = ones()
    dist.all_reduce(value, getattr(dist.ReduceOp, name))
    record(name, value)
value = ones()
work = dist.all_reduce(value, async_op=True)
work.wait()
record("later", value)
late = torch.zeros(2, device=device)
late.copy_(ones("cpu").pin_memory(), non_blocking=True)
dist.all_reduce(late)
record("after a late copy", late)
part = torch.empty(1, device=device)
dist.reduce_scatter_tensor(part, ones())
record("reduce_scatter", part)
parts = torch.empty(4, device=device)
dist.all_gather_into_tensor(parts, ones())
record("all_gather", parts)
value = ones("cpu")
dist.all_reduce(value)
record("on the host", value)
layer = torch.nn.Linear(2, 1, bias=False, device=device)
model = torch.nn.parallel.DistributedDataParallel(
    layer, device_ids=[rank]
)  # kept: it averages in `backward`
model(ones()).sum().backward()
record("averaged gradient", layer.weight.grad[0])
print(json.dumps(results))
dist.destroy_process_group()
