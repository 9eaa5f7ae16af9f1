"""A program with code for CUDA that its run cannot show; a line's comment lists the names in the source."""

# A comment at the end of a line belongs to that line.
# fmt: off
import os, subprocess, sys, torch, torch.distributed as dist
x = torch.ones(512, device="cuda")
if x.device.type == "cuda" and "cuda" in str(x.device):  # ask "cuda"
    x += 1
os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", "29621"
dist.init_process_group(
    "nccl", rank=0, world_size=1,
)
dist._remote_device("rank:0/cuda:0")  # device "rank:0/cuda:0"
assert dist.get_backend() == "nccl"  # ask "nccl"
torch.backends.cudnn.benchmark = True  # setting torch.backends.cudnn.benchmark
torch.backends.cuda.enable_math_sdp(True)  # setting torch.backends.cuda.enable_math_sdp()
hasattr(torch._C, "_cuda_getDeviceCount")  # ask "_cuda_getDeviceCount"
@torch.library.custom_op("detected::f", mutates_args=(), device_types="cpu")
def operator(x: torch.Tensor) -> torch.Tensor:
    return x.clone()
operator.register_kernel("cuda")(lambda x: x)  # device "cuda"
environ = {**os.environ, "CUDA_VISIBLE_DEVICES": "0"}  # environment "CUDA_VISIBLE_DEVICES"
subprocess.run([sys.executable, "-c", "0"], env=environ, check=True)
def unused():
    torch.cuda.synchronize()
    return torch.version.cuda  # ask torch.version.cuda
torch.cuda.synchronize()
dist.destroy_process_group()
