"""Destroy process groups whose threads get no time on the CPU, while they hold the last tensors."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import accel_core
import accel_train

device = accel_core.get_accelerator().device()
library = dist if device.type == "cuda" else accel_train
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
for _ in range(8):
    job = library.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).to(device))
    for task in Path("/proc/self/task").iterdir():
        if "gloo" in (task / "comm").read_text():
            os.sched_setscheduler(int(task.name), os.SCHED_IDLE, os.sched_param(0))
    dist.all_reduce(torch.ones(3, device=device))
    if job:
        job.shutdown()
    else:
        dist.destroy_process_group()
    del net
    gc.collect()
for process in busy:
    process.kill()
print(f"all groups ended on {device}")
