"""A portable program, in which torch and accel return CUDA's names on a simulated cuda."""

# A comment at the end of a line belongs to that line.
# fmt: off
import torch, accel_core
acc = accel_core.get_accelerator()
model = torch.nn.Linear(8, 8).to(acc.device_name(0))
x = torch.randn(2, 8, device=torch.accelerator.current_accelerator().type)
with torch.autocast(x.device.type):
    model(x)
torch.amp.GradScaler(x.device.type)
torch.amp.custom_fwd(print, device_type=acc.device_name())
torch.profiler.profile()
where = {"init_method": "tcp://127.0.0.1:29619", "rank": 0, "world_size": 1}
torch.distributed.init_process_group(acc.communication_backend_name(), **where)
torch.distributed.init_device_mesh(x.device.type, (1,))
torch.distributed.destroy_process_group()
