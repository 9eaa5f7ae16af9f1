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
dist.get_backend() == "nccl"  # ask "nccl"
torch.backends.cudnn.benchmark = True  # setting torch.backends.cudnn.benchmark
torch.backends.cuda.enable_math_sdp(True)  # setting torch.backends.cuda.enable_math_sdp()
hasattr(torch._C, "_cuda_getDeviceCount")  # ask "_cuda_getDeviceCount"
operator = torch.library.custom_op("detected::f", lambda x: x, mutates_args=(), device_types="cpu", schema="(Tensor x) -> Tensor")
operator.register_kernel("cuda")(lambda x: x)  # device "cuda"
subprocess.run([sys.executable, "-c", "0"], env={**os.environ, "CUDA_VISIBLE_DEVICES": "0"}, check=True)  # environment "CUDA_VISIBLE_DEVICES"
def unused():
    torch.cuda.synchronize()
    torch.version.cuda  # ask torch.version.cuda
torch.cuda.synchronize()
dist.destroy_process_group()
