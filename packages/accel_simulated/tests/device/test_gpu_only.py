"""What torch has for GPUs only: operators, copies among devices and processes, branches of CUDA's."""

import re
from importlib.util import find_spec
from pathlib import Path

# ---------------------------------------------------------------------------- operators

#: Two halves as two processes see them, against batch norm of the whole on the CPU.
SYNCHRONISED = """
import json, torch
from torch import nn
torch.manual_seed(0)
whole = torch.randn(8, 3, 5, requires_grad=True)
arriving = torch.randn(8, 3, 5)
layer = nn.BatchNorm1d(3)
nn.init.uniform_(layer.weight)
nn.init.uniform_(layer.bias)
out = layer(whole)
out.backward(arriving)

weight, bias = layer.weight.detach().to("acme"), layer.bias.detach().to("acme")
halves = [half.to("acme") for half in whole.detach().split([3, 5])]
gradients = [half.to("acme") for half in arriving.split([3, 5])]
stats = [torch.batch_norm_stats(half, 1e-5) for half in halves]
means, invstds = (torch.stack(each) for each in zip(*stats))
counts = torch.tensor([15.0, 25.0], device="acme")
mean_of_all, var_of_all = torch.zeros(3, device="acme"), torch.ones(3, device="acme")
mean, invstd = torch.batch_norm_gather_stats_with_counts(
    halves[0], means, invstds, mean_of_all, var_of_all, 0.1, 1e-5, counts)
ours = [torch.batch_norm_elemt(half, weight, bias, mean, invstd, 1e-5) for half in halves]
sums = [torch.batch_norm_backward_reduce(gradient, half, mean, invstd, weight, True, True, True)
        for gradient, half in zip(gradients, halves)]
of_all, centred, for_weight, for_bias = (sum(each) for each in zip(*sums))
back = [torch.batch_norm_backward_elemt(gradient, half, mean, invstd, weight, of_all, centred, counts.int())
        for gradient, half in zip(gradients, halves)]
pairs = {
    "out": (torch.cat(ours), out),
    "running mean": (mean_of_all, layer.running_mean),
    "running variance": (var_of_all, layer.running_var),
    "gradient of the input": (torch.cat(back), whole.grad),
    "gradient of the weight": (for_weight, layer.weight.grad),
    "gradient of the bias": (for_bias, layer.bias.grad),
}
half = halves[0].bfloat16()
types = [torch.batch_norm_stats(half, 1e-5)[0].dtype,
         torch.batch_norm_elemt(half, weight, bias, mean, invstd, 1e-5).dtype]
print(json.dumps({
    "equal": {name: torch.allclose(one.cpu(), other, atol=1e-5) for name, (one, other) in pairs.items()},
    "types": list(map(str, types)),
}))
"""


def test_synchronised_batch_norm_is_batch_norm_of_all_processes_rows(simulated):
    told = simulated("acme", SYNCHRONISED).answer
    assert told["equal"] == dict.fromkeys(told["equal"], True)
    assert told["types"] == ["torch.float32", "torch.bfloat16"]


#: Softmax of float16 in float32, which autocast computes on GPUs without a conversion of its own.
SOFTMAX = """
import json, torch
from torch.nn import functional as F

torch.manual_seed(0)
values, arriving = torch.randn(3, 4).half(), torch.randn(3, 4)
comparisons = []
for function in (F.softmax, F.log_softmax):
    host, device = values.clone().requires_grad_(), values.to("cuda").requires_grad_()
    expected, out = (function(x, 1, dtype=torch.float32) for x in (host, device))
    expected.backward(arriving)
    out.backward(arriving.to("cuda"))
    equal = [torch.equal(one.cpu(), other) for one, other in ((out, expected), (device.grad, host.grad))]
    comparisons.append([str(out.dtype), *equal])
print(json.dumps(comparisons))
"""


def test_softmax_of_float16_in_float32(simulated):
    expected = ["torch.float32", True, True]
    assert simulated("cuda", SOFTMAX).answer == [expected, expected]


REFUSED = """
import json, torch
import torch.multiprocessing
from multiprocessing.reduction import ForkingPickler
from torch import nn

x = torch.ones(2, 2, device="acme")

def said(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

print(json.dumps([
    said(lambda: torch._fused_dropout(x, 0.5)),
    said(lambda: torch.rand(2, generator=torch.Generator(), device="acme")),
    said(lambda: ForkingPickler.dumps(x)),
    said(lambda: nn.DataParallel(nn.Linear(2, 2).to("acme"))(x)),
    str(torch.mm(x.half(), x.half(), out_dtype=torch.float32).dtype),
]))
"""


def test_what_a_device_other_than_cuda_lacks_is_refused_in_one_sentence(simulated):
    kernel, generator, sent, parallel, product = simulated("acme", REFUSED).answer
    assert kernel.startswith(
        "NotImplementedError: aten::_fused_dropout is not simulated: "
    )
    assert generator.startswith(
        "RuntimeError: Expected a 'acme' device type for generator but found 'cpu'"
    )
    assert sent.startswith(
        "UnsupportedError: a tensor on acme:0 cannot be sent to another process: "
    )
    assert parallel.startswith("UnsupportedError: torch.nn.DataParallel ")
    assert "DistributedDataParallel" in parallel
    assert product == "torch.float32"


# ---------------------------------------------------------------------------- random numbers of the host

AS_THE_HOST = """
import json, torch

ours, host = torch.Generator("acme").manual_seed(5), torch.Generator().manual_seed(5)
draw = lambda: torch.randn(7, generator=ours, device="acme").tolist()
equal = [draw() == torch.randn(7, generator=host).tolist() for _ in range(3)]
state = ours.get_state()
once, again = draw(), (ours.set_state(state), draw())[1]
torch.manual_seed(1)
of_default = torch.rand(3, generator=torch.acme.default_generators[0], device="acme").tolist()
torch.manual_seed(1)
print(json.dumps([equal, once == again, of_default == torch.rand(3).tolist()]))
"""


def test_a_generator_of_the_device_draws_the_hosts_numbers_where_asked(simulated):
    environ = {"ACCEL_SIMULATE_RANDOM": "host"}
    told = simulated("acme", AS_THE_HOST, environ=environ).answer
    assert told == [[True, True, True], True, True]


TRUNCATED = """
import json, torch, torch.distributed as dist
from torch.distributed.tensor import Replicate, empty

dist.init_process_group("accl", store=dist.HashStore(), rank=0, world_size=1)
mesh = dist.init_device_mesh("acme", (1,))
drawn = empty(64, 64, device_mesh=mesh, placements=[Replicate()])
torch.nn.init.trunc_normal_(drawn, a=-1, b=1)
again = torch.nn.init.normal_(torch.empty_like(drawn))
values = drawn.to_local()
print(json.dumps([values.abs().max().item() <= 1, torch.equal(values, again.to_local())]))
dist.destroy_process_group()
"""


def test_dtensor_draws_new_numbers_each_time_with_the_hosts_generator(simulated):
    """It puts the host's generator back after each draw: what is drawn until it fits never ended."""
    environ = {"ACCEL_SIMULATE_RANDOM": "host"}
    assert simulated("acme", TRUNCATED, environ=environ, timeout=120).answer == [
        True,
        False,
    ]


# ---------------------------------------------------------------------------- names of the vendors' packages

NAMES = """
import json, torch_npu

said = {}
for name in ("npu_fusion_attention", "npu_rms_norm", "npu_swiglu"):
    try:
        getattr(torch_npu, name)(1, scale=2)
    except NotImplementedError as error:
        said[name] = str(error)
print(json.dumps(said))
"""


def test_an_operator_of_the_vendors_is_a_name_and_says_so_when_it_is_called(simulated):
    for name, said in simulated("npu", NAMES).answer.items():
        assert said.startswith(
            f"torch_npu.{name} is not simulated, because it is one of the vendor's kernels."
        )


ATTENTION_OF_GAUDI = """
import json
import habana_frameworks.torch
from habana_frameworks.torch.hpex.kernels import FusedSDPA

try:
    FusedSDPA.apply(1, 2, 3)
except NotImplementedError as error:
    print(json.dumps(str(error)))
"""


def test_gaudis_attention_says_so_too(simulated):
    said = simulated("hpu", ATTENTION_OF_GAUDI).answer
    assert said.startswith(
        "habana_frameworks.torch.hpex.kernels.FusedSDPA is not simulated, because "
    )


# ---------------------------------------------------------------------------- branches of CUDA's

OF_CUDA = """
import json, torch

def said(call):
    try:
        return str(call())
    except Exception as error:
        return f"{type(error).__name__}: {error}"

x = torch.ones(2, 3, device="cuda")
torch.compile(lambda x: x * 2, backend="aot_eager")(x)
torch._dynamo.reset()
torch.cuda.ipc_collect()
torch.cuda.memory._record_memory_history()
torch.cuda.profiler.start()
torch.backends.cuda.preferred_linalg_library("cusolver")
torch.backends.cuda.preferred_blas_library("cublaslt")
torch.backends.cuda.cufft_plan_cache.clear()
torch.cuda.set_sync_debug_mode("warn")
from torch._native.common_utils import check_native_jit_disabled
from torch.utils._triton import has_triton

jiterated = torch.cuda.jiterator._create_jit_fn("template <typename T> T f(T x) { return x; }")
print(json.dumps({
    "version": [int(number) for number in torch.version.cuda.split(".")],
    "config": "simulated: no library of the vendor's" in torch.__config__.show(),
    "triton": [check_native_jit_disabled(), has_triton()],
    "kept": [torch.cuda.get_sync_debug_mode(), torch.cuda.get_allocator_backend()],
    "there": [hasattr(torch._C, name) for name in ("_cuda_getDeviceCount", "_cuda_getCurrentBlasHandle")],
    "said": [said(torch.cuda.current_blas_handle), said(lambda: jiterated(x)),
             said(lambda: torch.cuda.get_device_properties(0).pci_bus_id)],
}))
"""


def test_torchs_branches_for_cuda_work_or_say_that_they_are_not_simulated(simulated):
    told = simulated("cuda", OF_CUDA).answer
    handle, jiterated, property_ = told.pop("said")
    assert handle.startswith(
        "NotSimulatedError: torch._C._cuda_getCurrentBlasHandle is not simulated: "
    )
    assert "_cuda_jiterator_compile_and_launch_kernel is not simulated" in jiterated
    assert property_.endswith(
        "the properties of a simulated device do not have 'pci_bus_id'"
    )
    assert told == {
        "version": [0, 0],
        "config": True,
        "triton": [True, False],
        "kept": [1, "native"],
        "there": [True, False],
    }


def test_each_file_of_torch_that_asks_for_cuda_is_known():
    """A new torch asks in other places: try them on the simulated cuda, and write down what they do."""
    listed = re.findall(
        r'^"(.+?)" = "(?:works|refused|not reached)',
        Path(__file__).with_name("cuda_branches.toml").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    torch = Path(find_spec("torch").submodule_search_locations[0])
    beyond = ("_inductor/", "_vendor/", "testing/", "utils/benchmark/", "utils/data/")
    asking = {"cuda/__init__.py"}  # which defines it
    for file in torch.rglob("*.py"):
        name = file.relative_to(torch).as_posix()
        text = file.read_text(encoding="utf-8", errors="replace")
        if not name.startswith(beyond) and "cuda.is_available()" in text:
            asking.add(name)
    assert sorted(listed) == sorted(asking)


# ---------------------------------------------------------------------------- Triton

NATIVE = """
import json, torch
from torch._native import common_utils
print(json.dumps(common_utils.check_native_jit_disabled()))
"""


def test_torch_takes_no_kernel_of_triton_which_needs_the_driver(simulated):
    """Many packages bring triton: torch then has Triton kernels for some shapes of `bmm`."""
    assert simulated("cuda", NATIVE).answer is True
