"""FSDP2: every layer sharded over a mesh of all ranks, with mixed precision, and its state gathered."""

import json
import os

import torch
from torch import distributed, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
distributed.init_process_group("nccl")
mesh = init_device_mesh("cuda", (world,))

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 4)).to(device)
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for layer in model:
    if isinstance(layer, nn.Linear):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

losses = []
for step in range(6):
    numbers = torch.Generator().manual_seed(step * world + rank)
    inputs, targets = torch.randn(16, 8, generator=numbers), torch.randint(0, 4, (16,), generator=numbers)
    loss = nn.functional.cross_entropy(model(inputs.to(device)).float(), targets.to(device))
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses += [loss.item(), norm.full_tensor().item()]

state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
if rank == 0:
    losses.append(sum(value.double().sum().item() for value in state.values()))
    print(json.dumps({"device": str(device), "losses": losses}))
distributed.destroy_process_group()
