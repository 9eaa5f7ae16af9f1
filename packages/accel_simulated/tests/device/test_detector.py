"""`accel simulate --report`: each place of a program that is written for a vendor, once, with its count."""

import json
import re

import pytest
from accel_tests.children import clean_environment, run_python

from accel_simulated.detector.merge import merge

pytestmark = pytest.mark.nightly(
    reason="promises of the simulator: its detector of vendors' names"
)

#: A line's comment is what is to be found there, how often, and whether it raises (`!`); lines without one
#: are for every device, or torch's own.
PROGRAM = r"""
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
assert isinstance(device, torch.device) and type(torch.device) is type
assert pickle.loads(pickle.dumps(torch.cuda.is_available)) is torch.cuda.is_available
assert torch.cuda.empty_cache.__module__ == torch.cuda.memory.__name__
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    torch.cuda.memory_cached()  # call torch.cuda.memory_cached()
    torch.cuda.amp.autocast()  # precision torch.cuda.amp.autocast()
    torch.has_cuda
assert [warning.filename == __file__ for warning in told] == [True, True, False, True], told

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
"""
CHILD = 'import os\nassert "CUDA_VISIBLE_DEVICES" in os.environ\n'


def _expected(source):
    found = {}
    for number, line in enumerate(source.splitlines(), 1):
        for comment in filter(None, line.partition("  # ")[2].split(" & ")):
            kind, what, times, raises = re.fullmatch(
                r"(\S+) (.*?)(?: (\d+))?( !)?", comment
            ).groups()
            found[number, kind, what] = int(times or 1), bool(raises)
    return found


def test_each_place_once_in_every_format_and_process(tmp_path, built):
    built("acme")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    (tmp_path / "child.py").write_text(CHILD)
    reports = [tmp_path / f"cuda.{ending}" for ending in ("json", "md", "sarif")]
    options = [word for report in reports for word in ("--report", report.name)]
    words = [
        "-m",
        "accel_core",
        "simulate",
        *options,
        "acme",
        "--",
        "python",
        "program.py",
        "child.py",
    ]
    ended = run_python(words, clean_environment(), cwd=tmp_path)
    assert ended.returncode == 3, ended.stdout + ended.stderr

    told = json.loads(reports[0].read_text())
    places = [
        place
        for place in told["assumptions"] + told["asks"]
        if place["file"] == "program.py"
    ]
    expected = _expected(PROGRAM)
    found = {
        (p["line"], p["kind"], p["what"]): (p["times"], bool(p["raised"]))
        for p in places
    }
    assert found == expected
    assert (told["status"], told["simulated"], told["notes"]) == (3, "acme:2", [])
    # The program, its child, its worker, and what it forked.
    assert told["processes"] == 4
    of_child = [
        (p["file"], p["what"])
        for p in told["asks"] + told["assumptions"]
        if p not in places
    ]
    assert of_child == [("child.py", "CUDA_VISIBLE_DEVICES read")]
    assert all(p["kind"] != "ask" for p in told["assumptions"])
    assert {p["kind"] for p in told["asks"]} == {"ask"}
    times = [
        place["times"] for place in told["assumptions"] if place["file"] == "program.py"
    ]
    assert times == sorted(times, reverse=True)

    markdown = reports[1].read_text()
    assert (
        markdown.count(
            "| `torch.cuda.empty_cache()` | `acc.empty_cache()`; or `torch.accelerator.em"
        )
        == 3
    )
    assert "| AssertionError: Torch not compiled with CUDA enabled |" in markdown
    (run,) = json.loads(reports[2].read_text())["runs"]
    assert len(run["results"]) == len(found) + 1


def _report(tmp_path, device, program, *, status=0):
    """Run a program on a simulated device, and return its report, with the Markdown's first sentences."""
    (tmp_path / "program.py").write_text(program)
    words = ["-m", "accel_core", "simulate", "--report", "a.md", "--report", "a.json"]
    words += [device, "--", "python", "program.py"]
    ended = run_python(words, clean_environment(), cwd=tmp_path)
    assert ended.returncode == status, ended.stdout + ended.stderr
    document = json.loads((tmp_path / "a.json").read_text())
    first = (tmp_path / "a.md").read_text().splitlines()[2]
    return document, first


def _places(document):
    """What the report lists of the program, as `_expected` gives it."""
    return {
        (place["line"], place["kind"], place["what"]): (
            place["times"],
            bool(place["raised"]),
        )
        for place in document["assumptions"] + document["asks"]
        if place["file"] == "program.py"
    }


@pytest.mark.parametrize(
    ("program", "status", "places"),
    [
        ("import no_such_module", 1, []),
        ("import torch\ntorch.cuda.init()\n", 1, [2]),
        (
            "import os, torch\ntorch.cuda.empty_cache()\nos.kill(os.getpid(), 9)\n",
            137,
            [2],
        ),
    ],
)
def test_a_program_that_dies_at_an_import_or_midway(
    tmp_path, built, program, status, places
):
    built("acme")
    document, first = _report(tmp_path, "acme", program, status=status)
    assert first.startswith(f"The program failed (exit status {status}): ")
    assert document["complete"] is False
    assert [place["line"] for place in document["assumptions"]] == places


def test_a_program_that_took_the_cpu(tmp_path, built):
    built("acme")
    program = (
        'import torch\ndevice = "cuda" if torch.cuda.is_available() else "cpu"\n'
        "torch.nn.Linear(2, 2, device=device)\n"
    )
    document, first = _report(tmp_path, "acme", program)
    expected = (
        "The program ran on the CPU. Nothing was allocated on acme:2 (simulated)."
    )
    assert (first, document["allocated"]) == (expected, 0)
    assert [place["what"] for place in document["asks"]] == [
        "torch.cuda.is_available()"
    ]


#: Only the worker uses the device.
WORKER = """
import torch, multiprocessing
def work():
    torch.ones(1000, device=torch.accelerator.current_accelerator())
if __name__ == "__main__":
    worker = multiprocessing.get_context("{}").Process(target=work)
    worker.start()
    worker.join()
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_worker_that_used_the_device(tmp_path, built, method):
    built("acme")
    document, first = _report(tmp_path, "acme", WORKER.format(method))
    assert document["allocated"] > 4000
    assert first.startswith("The program ran on acme:2 (simulated).")


#: torch's functions that few devices have, and a table of backends that ends in gloo.
LIMITED = """
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
where = dict(init_method="tcp://127.0.0.1:29617", rank=0, world_size=1)
dist.init_process_group(backend, **where)  # collective init_process_group("gloo")
dist.new_group(backend="gloo")
dist.destroy_process_group()
"""


def test_functions_that_few_devices_have_and_a_table_that_ends_in_gloo(tmp_path, built):
    built("acme")
    document, _ = _report(tmp_path, "acme", LIMITED)
    assert _places(document) == _expected(LIMITED)


#: Written for CUDA alone, and run to its end; and what is for every device, which gives CUDA's names there.
FOR_CUDA = """
import torch, torch.distributed as dist, accel_core
torch.cuda.set_device(0)  # call torch.cuda.set_device()
where = dict(init_method="tcp://127.0.0.1:29618", rank=0, world_size=1)
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
"""
FOR_ALL = """
import torch, accel_core
acc = accel_core.get_accelerator()
model = torch.nn.Linear(8, 8).to(acc.device_name(0))
x = torch.randn(2, 8, device=torch.accelerator.current_accelerator().type)
with torch.autocast(x.device.type):
    model(x)
torch.amp.GradScaler(x.device.type)
torch.amp.custom_fwd(print, device_type=acc.device_name())
torch.profiler.profile()
where = dict(init_method="tcp://127.0.0.1:29619", rank=0, world_size=1)
torch.distributed.init_process_group(acc.communication_backend_name(), **where)
torch.distributed.init_device_mesh(x.device.type, (1,))
torch.distributed.destroy_process_group()
"""


@pytest.mark.parametrize("program", [FOR_CUDA, FOR_ALL], ids=["cuda", "all"])
def test_a_whole_run_on_a_simulated_cuda(tmp_path, built, program):
    built("cuda")
    document, first = _report(tmp_path, "cuda", program)
    assert first.startswith("The program ran on cuda:2 (simulated).")
    assert _places(document) == _expected(program)


def test_a_torch_that_does_not_pass_device_strings_to_the_detector(tmp_path, simulated):
    """Because its library is missing, as it is for a run without `accel simulate --report`."""
    variables = {"ACCEL_SIMULATE_RECORD": str(tmp_path)}
    simulated("acme", "import torch; torch.device('cuda')", environ=variables)
    report = merge(tmp_path, tmp_path, [], "acme:2", 0)
    assert (report.places, report.processes, len(report.notes)) == ([], 1, 1)
    assert report.notes[0].startswith("device strings, which torch ")
