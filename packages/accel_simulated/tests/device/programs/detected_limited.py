"""Functions of torch that few devices support, and a table of backends that ends in gloo."""

# A comment at the end of a line belongs to that line.
# fmt: off
import torch, torch.distributed as dist
from torch.nn.attention.flex_attention import flex_attention
device = torch.accelerator.current_accelerator()
model = torch.nn.DataParallel(torch.nn.Linear(4, 4).to(device))  # limited torch.nn.DataParallel()
try:
    model(torch.ones(2, 4, device=device))
    torch.nn.parallel.scatter(torch.ones(2), [0, 1])
except RuntimeError:
    pass
q = torch.ones(1, 1, 16, 16)
flex_attention(q, q, q)
try:
    q = q.to(device)
    flex_attention(q, q, q)  # limited flex_attention() !
except ValueError:
    pass
backend = {"cuda": "nccl", "xpu": "xccl"}.get(device.type, "gloo")
where = {"init_method": "tcp://127.0.0.1:29617", "rank": 0, "world_size": 1}
dist.init_process_group(backend, **where)  # collective init_process_group("gloo")
dist.new_group(backend="gloo")
dist.destroy_process_group()
