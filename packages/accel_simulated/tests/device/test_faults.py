"""What goes wrong when it is asked to: each fault strikes where it was meant, and then all is well again."""

import pytest

pytestmark = pytest.mark.nightly(
    reason="promises of the simulator: the faults that it can play"
)

IN_BLOCKS = """
import json, time, torch
from accel_simulated import faults

ones = torch.ones(4, device="acme:0")
new = lambda: torch.empty(3, device="acme")
add = lambda: ones + 1
wait = torch.accelerator.synchronize

def said(*calls):
    found = []
    for call in calls:
        try: call(); found.append("")
        except Exception as error: found.append(f"{type(error).__name__}: {error}".splitlines()[0])
    return found

told = {}
with faults.injected("oom@2"):
    told["oom"] = said(new, new, new)
with faults.injected("kernel@2"):
    told["kernel"] = said(add, add, wait, wait)
with faults.injected("lost@2"):
    told["lost"] = said(add, add, new, wait, ones.tolist)
with faults.injected("slow=30"):
    began = time.perf_counter()
    told["slow"] = [*said(add, wait), time.perf_counter() - began]
with faults.injected("count=1@2"):
    told["count"] = [torch.accelerator.device_count(), *said(add, add), torch.accelerator.device_count(),
                     torch.acme.device_count(), *said(lambda: torch.ones(1, device="acme:1"))]
told["after"] = [*said(new, add, wait), torch.accelerator.device_count()]
print(json.dumps(told))
"""


def test_in_blocks(simulated):
    told = simulated("acme", IN_BLOCKS).answer
    assert [bool(text) for text in told["oom"]] == [False, True, False]
    assert told["oom"][1].startswith(
        "OutOfMemoryError: simulated device 0 out of memory (requested)"
    )
    # As on a device: it shows when the stream is waited for, and is forgotten then.
    failed = "RuntimeError: simulated device: asynchronous work failed: kernel 2 failed (requested)"
    assert told["kernel"] == ["", "", failed, ""]
    assert all("the device is lost (requested)" in text for text in told["lost"][1:])
    assert (told["lost"][0], told["slow"][:2]) == ("", ["", ""])
    assert told["slow"][2] >= 0.03
    assert (told["count"][:5], told["after"]) == ([2, "", "", 1, 1], ["", "", "", 2])
    assert "invalid device ordinal 1, there are 1" in told["count"][5]


BY_VARIABLE = """
import json, torch
answer = [torch.cuda.is_available(), torch.cuda.device_count()]
try: torch.ones(2, device="cuda")
except Exception as error: answer.append(str(error))
print(json.dumps(answer))
"""


def test_a_driver_that_is_too_old(simulated):
    answer = simulated(
        "cuda", BY_VARIABLE, environ={"ACCEL_SIMULATE_FAULTS": "driver"}
    ).answer
    too_old = "The Simulated CUDA driver on your system is too old (requested by ACCEL_SIMULATE_FAULTS)"
    assert answer == [False, 0, too_old]


HANG = """
import datetime, os
if os.environ["RANK"] == "1":
    os.environ["ACCEL_SIMULATE_FAULTS"] = "hang@2"
import torch, torch_acme
import torch.distributed as dist
dist.init_process_group("accl", timeout=datetime.timedelta(seconds=3))
value = torch.ones(2, device="acme")
dist.all_reduce(value)
if dist.get_rank() == 1:
    import faulthandler
    faulthandler.dump_traceback_later(2, exit=True)  # it would hang for ever
dist.all_reduce(value)
"""


def test_a_collective_that_hangs(simulated):
    """In the rank that was asked to; the other one runs into its time limit, or sees that one go."""
    first, second = simulated("acme", HANG, processes=2, check=False).ended
    assert "count_collective" in second.stderr
    assert first.returncode != 0


LATE = """
import gc, os, subprocess, sys, accel_core, accel_train, torch, torch.distributed as dist
device = accel_core.get_accelerator().device()
ours = dist if device.type == "cuda" else accel_train
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
for _ in range(8):
    job = ours.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).to(device))
    for task in os.listdir("/proc/self/task"):
        if "gloo" in open(f"/proc/self/task/{task}/comm").read():
            os.sched_setscheduler(int(task), os.SCHED_IDLE, os.sched_param(0))
    dist.all_reduce(torch.ones(3, device=device))
    job.shutdown() if job else dist.destroy_process_group()
    del net
    gc.collect()
print([each.kill() for each in busy], device)
"""


@pytest.mark.parametrize(
    ("vendor", "device"), [("cuda", "cuda"), ("plain", "plain"), ("plain", "cpu")]
)
def test_a_group_whose_threads_are_late_ends_with_its_last_holder(
    vendor, device, simulated
):
    """DistributedDataParallel's reducer, which has Python's lock; they need it to drop the last tensors.

    A busy machine gives them, as they are idle, a minute or two later what they need.
    """
    ended = simulated(
        vendor, LATE, environ={"DS_ACCELERATOR": device}, timeout=600
    ).ended
    assert f"[None, None] {device}" in ended[0].stdout
