"""A program with each kind of vendor-specific code; a line's comment lists the expected places.

A place is its kind, the code, the number of calls unless it is 1, and `!` if it raises an error. Lines
without a comment are for every device, or torch does it by itself.
"""

# A comment at the end of a line belongs to that line.
# fmt: off
import concurrent.futures, functools, os, pickle, signal, subprocess, sys, threading, warnings
os.environ["CUDA_VISIBLE_DEVICES"] = "0"  # environment CUDA_VISIBLE_DEVICES written
dict(os.environ), {**os.environ}, os.environ.copy(), list(os.environ.items()), os.environ | {}
os.getenv("CUDA_VISIBLE_DEVICES")  # environment CUDA_VISIBLE_DEVICES read
subprocess.run([sys.executable, sys.argv[1]], check=True)
import torch, torch.distributed as dist, torch.nn as nn
from torch.cuda import synchronize
warnings.simplefilter("ignore")

def failing(function):
    try:
        function()  # call torch.cuda.synchronize() !
    except Exception:
        return
    raise AssertionError("did not raise")

# What torch does by itself for CUDA is nobody's fault.
torch.manual_seed(0)
torch.randn(4, device="acme").cpu().pin_memory("acme")
torch.random.fork_rng(devices=[0], device_type="acme").__enter__()
next(iter(torch.utils.data.DataLoader([1], pin_memory=True)))
with torch.autocast("acme", dtype=torch.bfloat16):
    torch.ones(2, 2, device="acme") @ torch.ones(2, 2, device="acme")
torch.nn.Linear(2, 2, device="acme").to("acme:1").to("cpu")

for _ in range(3):
    torch.cuda.empty_cache()  # call torch.cuda.empty_cache() 3
functools.partial(torch.cuda.manual_seed_all, 1)()  # call torch.cuda.manual_seed_all()
with concurrent.futures.ThreadPoolExecutor() as pool:
    pool.submit(lambda: torch.cuda.manual_seed(1)).result()  # call torch.cuda.manual_seed()
failing(synchronize)
failing(lambda: torch.cuda.set_device(0))  # call torch.cuda.set_device() !
failing(lambda: torch.cuda.Stream())  # call torch.cuda.Stream() !
failing(lambda: torch.xpu.synchronize())  # call torch.xpu.synchronize() !
failing(lambda: torch.npu.synchronize())  # call torch.npu !
failing(lambda: torch.cuda.FloatTensor(2))  # type torch.cuda.FloatTensor
failing(lambda: torch.ones(2).cuda())  # move .cuda() !
failing(lambda: nn.Linear(2, 2).cuda())  # move .cuda() !
failing(lambda: torch.ones(2, device="cuda:1"))  # device "cuda:1" !
failing(lambda: torch.ones(2).to("mps"))  # device "mps"
failing(lambda: nn.Linear(2, 2, device="cuda"))  # device "cuda" !
failing(lambda: nn.Linear(2, 2).to("cuda"))  # device "cuda" !
failing(lambda: torch.device("mlu"))  # device "mlu" !
device = torch.device("cuda", 0)  # device "cuda"
failing(lambda: torch.ones(2, device=device))
failing(lambda: dist.init_process_group("cuda:nccl"))  # collective init_process_group("cuda:nccl") !
failing(lambda: dist.init_device_mesh("cuda", (1,)))  # device init_device_mesh("cuda") !
torch.autocast("cuda")  # precision autocast("cuda")
torch.amp.GradScaler()  # precision GradScaler("cuda")
torch.utils.data.DataLoader([1], pin_memory_device="cuda")  # pinning pin_memory_device="cuda"
torch.amp.custom_fwd(print, device_type="cuda")  # precision custom_fwd("cuda")
torch.amp.custom_bwd(device_type="cuda")(print)  # precision custom_bwd("cuda")
torch.cuda.amp.custom_fwd(print)  # precision torch.cuda.amp.custom_fwd()
torch.autograd.graph.save_on_cpu(True, "cuda")  # device save_on_cpu("cuda")
torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])  # device ProfilerActivity.CUDA
torch.profiler.profile()

torch.cuda.is_available(), torch.ones(2).is_cuda  # ask torch.cuda.is_available() & ask .is_cuda
torch.backends.mps.is_available()  # ask torch.backends.mps.is_available()
dist.is_nccl_available()  # ask is_nccl_available()
hasattr(torch, "npu")  # ask torch.npu
torch.cuda.device_count()  # ask torch.cuda.device_count()
torch.amp.is_autocast_available("cuda")  # ask is_autocast_available("cuda")

# Whoever looks sees torch's own.
assert isinstance(device, torch.device)
assert type(torch.device) is type
assert pickle.loads(pickle.dumps(torch.cuda.is_available)) is torch.cuda.is_available
assert torch.cuda.empty_cache.__module__ == torch.cuda.memory.__name__
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    torch.cuda.memory_cached()  # call torch.cuda.memory_cached()
    torch.cuda.amp.autocast()  # precision torch.cuda.amp.autocast()
    _ = torch.has_cuda
assert [warning.filename == __file__ for warning in caught] == [True, True, False, True], caught

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, index):
        torch.cuda.empty_cache()  # call torch.cuda.empty_cache() 2
        return index

list(torch.utils.data.DataLoader(Data(), num_workers=1, multiprocessing_context="fork"))
child = os.fork()
if not child:
    for _ in range(5):
        torch.cuda.manual_seed(1)  # call torch.cuda.manual_seed() 5
    os.kill(os.getpid(), signal.SIGKILL)
os.waitpid(child, 0)
os.chdir("/")
torch.cuda.empty_cache()  # call torch.cuda.empty_cache()
sys.stdout.flush()
os._exit(3)
