"""A program for CUDA alone, which runs to its end on a simulated cuda."""

# A comment at the end of a line belongs to that line.
# fmt: off
import torch, torch.distributed as dist, accel_core
torch.cuda.set_device(0)  # call torch.cuda.set_device()
where = {"init_method": "tcp://127.0.0.1:29618", "rank": 0, "world_size": 1}
dist.init_process_group("nccl", **where)  # collective init_process_group("nccl")
model = torch.nn.Linear(8, 8).cuda()  # move .cuda()
model = torch.nn.DataParallel(model)  # limited torch.nn.DataParallel()
scaler = torch.amp.GradScaler()  # precision GradScaler("cuda")
torch.amp.custom_fwd(print, device_type="cuda")  # precision custom_fwd("cuda")
for _ in range(3):
    x = torch.randn(2, 8, device="cuda")  # device "cuda" 3
    with torch.autocast("cuda"):  # precision autocast("cuda") 3
        loss = model(x).square().mean()
    scaler.scale(loss).backward()
    torch.cuda.synchronize()  # call torch.cuda.synchronize() 3
torch.cuda.Stream()  # call torch.cuda.Stream()
torch.cuda.is_bf16_supported(), x.is_cuda  # ask torch.cuda.is_bf16_supported() & ask .is_cuda
dist.destroy_process_group()
