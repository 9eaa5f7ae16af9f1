"""Ranks without collectives of their device: the staged process group, and gloo over host memory."""

import pytest

# ---------------------------------------------------------------------------- staged
# The staged process group on a simulated device without collectives, and on one that also has streams.


CHECKS = "simulated_checks.staged"
#: Devices, and the ranks that meet; three by night.
GROUPS = [
    ("plain", 2),
    pytest.param(
        "plain", 3, marks=pytest.mark.nightly(reason="a third rank; by day two")
    ),
    ("acme", 2),
]


@pytest.mark.parametrize(("vendor", "processes"), GROUPS)
def test_everything_in_one_group(vendor, processes, simulated):
    """Collectives give gloo's bits, and training the CPU's; what cannot be done is said before it begins."""
    answers = simulated(
        vendor, f"{CHECKS}_life:everything", vendor, processes=processes, timeout=400
    ).answers
    for told in answers:
        assert min(told["moved"], told["reduced"]) > 500
        # Of the default group and of one of this rank alone; none of the one that was destroyed.
        assert (told["trained"], told["threads"], told["left"]) == (True, 2, 0)
        assert told["uneven"]
        assert "the process group has been destroyed" in told["late"]
        said, in_all = told["refused"], 4 * processes
        assert said["sizes"] == (
            f"ValueError: {processes} parts of 4 do not add up to {in_all + 4}: expected {in_all} in total"
        )
        splits = f"splits {[2] * processes} for {processes} ranks do not add up to dimension 0, which is 2"
        assert said["splits"].startswith(f"ValueError: {splits}")
        assert said["sparse"].startswith(
            "UnsupportedError: a tensor of layout torch.sparse_coo cannot be staged"
        )


def test_a_rank_that_does_not_come_is_said(simulated):
    answers = simulated("plain", f"{CHECKS}_life:lost", "plain", processes=2).answers
    assert [kind for kind, _ in answers[0]["said"]] == ["CommunicationError"] * 2
    first = answers[0]["said"][0][1]
    for words in ("rank 0 of 2, staged over gloo for plain", "all_reduce of 1 tensor (float32), 16 bytes",
                  "imed out", "check the output of the other ranks"):  # fmt: skip
        assert words in first


def test_fully_sharded_training_equals_the_cpu(simulated):
    """On mlu's module: FSDP2 takes streams from `torch.<device>`, and asks nobody else for them."""
    run = simulated("mlu", f"{CHECKS}_training:fully_sharded", "mlu", processes=2)
    assert run.answers == [{"equal": True}] * 2


# ---------------------------------------------------------------------------- the vendor's own
# The collectives that a simulated vendor has are the same group under the vendor's name.


@pytest.mark.parametrize("vendor", ["acme", "cuda"])
def test_a_vendors_collectives_are_those_of_staged(vendor, simulated):
    check = f"{CHECKS}_training:of_the_vendor"
    run = simulated(vendor, check, vendor, processes=2, timeout=400)
    for told in run.answers:
        assert told["collectives"] > 500
        assert told["divided gradient"] == 256.0
        assert told["losses"] == [told["losses"][0]] * 2


NCCL = """
import json, torch
import torch.distributed as dist

options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
group = dist.new_group([0], pg_options=options)
objects = [None]
dist.all_gather_object(objects, "object", group=group)
print(json.dumps([options.is_high_priority_stream, objects]))
dist.destroy_process_group()
"""


def test_nccls_options_and_debug_level(simulated):
    """With DETAIL torch logs a hash of each pickled object; builds without NCCL lack its function."""
    variables = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    assert simulated("cuda", NCCL, environ=variables).answer == [True, ["object"]]


# ---------------------------------------------------------------------------- gloo
# Gloo computes tensors on simulated CUDA devices over host memory, as CUDA builds of torch do.


CODE = """
import json, torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
device = torch.device("cuda", rank)
torch.cuda.set_device(device)
told = {}

def ones(of=device):
    return torch.full((2,), rank + 1.0, device=of)

def told_of(name, tensor):
    told[name] = [str(tensor.device.type), tensor.tolist()]

for name in ("SUM", "AVG", "MAX"):
    value = ones()
    dist.all_reduce(value, getattr(dist.ReduceOp, name))
    told_of(name, value)
value = ones()
work = dist.all_reduce(value, async_op=True)
work.wait()
told_of("later", value)
late = torch.zeros(2, device=device)
late.copy_(ones("cpu").pin_memory(), non_blocking=True)
dist.all_reduce(late)
told_of("after a late copy", late)
part = torch.empty(1, device=device)
dist.reduce_scatter_tensor(part, ones())
told_of("reduce_scatter", part)
parts = torch.empty(4, device=device)
dist.all_gather_into_tensor(parts, ones())
told_of("all_gather", parts)
value = ones("cpu")
dist.all_reduce(value)
told_of("on the host", value)
layer = torch.nn.Linear(2, 1, bias=False, device=device)
model = torch.nn.parallel.DistributedDataParallel(layer, device_ids=[rank])  # kept: it averages in `backward`
model(ones()).sum().backward()
told_of("averaged gradient", layer.weight.grad[0])
print(json.dumps(told))
dist.destroy_process_group()
"""
SUM = ["cuda", [3.0, 3.0]]


@pytest.mark.parametrize("vendor", ["cuda", "klxpu"])
def test_gloo_takes_tensors_on_the_device(vendor, simulated):
    for told in simulated(vendor, CODE, processes=2).answers:
        assert told == {
            "SUM": SUM,
            "AVG": ["cuda", [1.5, 1.5]],
            "MAX": ["cuda", [2.0, 2.0]],
            "later": SUM,
            "after a late copy": SUM,
            "reduce_scatter": ["cuda", [3.0]],
            "all_gather": ["cuda", [1.0, 1.0, 2.0, 2.0]],
            "on the host": ["cpu", [3.0, 3.0]],
            "averaged gradient": ["cuda", [1.5, 1.5]],
        }
