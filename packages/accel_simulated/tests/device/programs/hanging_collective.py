"""Call two collectives, the second of which hangs in rank 1."""

import datetime as dt
import faulthandler
import os

if os.environ["RANK"] == "1":
    os.environ["ACCEL_SIMULATE_FAULTS"] = "hang@2"

import torch
import torch.distributed as dist
import torch_acme

dist.init_process_group("accl", timeout=dt.timedelta(seconds=3))
value = torch.ones(2, device="acme")
dist.all_reduce(value)
if dist.get_rank() == 1:
    # Without this line, the second collective would never return.
    faulthandler.dump_traceback_later(2, exit=True)
dist.all_reduce(value)
