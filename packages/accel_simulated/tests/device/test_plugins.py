"""Each real plugin on its simulated device: what it answers of itself, and the example.

The plugins come from this repository's `plugins/`, with the entry points that they declare, before any that
are installed in the environment.
"""

import re
from pathlib import Path

import pytest
from accel_tests.on_disk import PLUGINS, VERSION, install_real_plugin

from accel_simulated import VENDORS

pytestmark = pytest.mark.skipif(
    not PLUGINS.is_dir(), reason=f"the plugins' sources are not at {PLUGINS}"
)

REFUSALS_BY_NIGHT = pytest.mark.nightly(
    reason="measures with a driver that refuses each question; by day on acme"
)
REAL = [name for name in VENDORS if name != "acme"]


@pytest.fixture
def path(tmp_path, request):
    """A folder for `sys.path` in which the plugin under test is installed."""
    install_real_plugin(tmp_path, request.getfixturevalue("vendor"))
    return [tmp_path]


@pytest.mark.parametrize("vendor", REAL)
def test_every_member(vendor, path, simulated):
    function = "simulated_checks.plugins:of_plugin"
    answer = simulated(vendor, function, vendor, path=path, timeout=300).answer
    problems = {
        member: problem for member, problem in answer["problems"].items() if problem
    }
    assert answer["distribution"] == [f"accel-{vendor}", VERSION]
    assert Path(answer["file"]).is_relative_to(path[0])
    assert len(answer["problems"]) >= 18
    assert not problems, "\n".join(
        f"{member}: {problem}" for member, problem in problems.items()
    )


@pytest.mark.nightly(
    reason="a training for each plugin, whose members are asked by day"
)
@pytest.mark.parametrize("vendor", REAL)
def test_digits_equal_cpu(vendor, path, digits_on_cpu, train_digits):
    report = train_digits(vendor, vendor, path)
    assert report["backend"] == vendor
    assert report["parameters_sha256"] == digits_on_cpu["parameters_sha256"]
    assert report["test_accuracy"] == digits_on_cpu["test_accuracy"] > 0.8


PAGES = PLUGINS.parent / "docs/backends"


@pytest.mark.nightly(reason="a training for each plugin, in a process of its own")
@pytest.mark.parametrize("vendor", REAL)
def test_the_program_on_the_backend_pages_trains(vendor, path, simulated):
    program = PAGES / "notes/train.py"
    assert program.read_text("utf-8") in (PAGES / f"{vendor}.md").read_text("utf-8")
    run = simulated(vendor, program, environ={"DS_ACCELERATOR": vendor}, path=path)
    output = run.ended[0].stdout
    assert "training on Simulated" in output
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", output)]
    assert len(losses) == 5
    assert losses[-1] < losses[0] / 5


#: What `accel bench` leaves out where nothing is told of the device; npu has no float64 at all.
UNMEASURED = {
    "acme": [],
    "cuda": ["matrix.float16"],
    "xpu": ["matrix.float64"],
    "npu": ["matrix.float64"],
}


@pytest.mark.parametrize(
    "vendor",
    [
        pytest.param(name, marks=() if name == "acme" else REFUSALS_BY_NIGHT)
        for name in UNMEASURED
    ],
)
def test_a_question_that_the_driver_refuses_is_one_unknown_answer(
    vendor, simulated, tmp_path
):
    """`accel info` and `accel bench` go on without it (pytorch#189811: Intel's integrated GPUs)."""
    pin = (
        "generic"
        if vendor == "acme"
        else install_real_plugin(tmp_path, vendor) or vendor
    )
    function = "simulated_checks.plugins:of_refusals"
    answers, wrong, unmeasured = simulated(
        vendor, function, pin, path=[tmp_path], timeout=300
    ).answer
    assert wrong == {}
    assert {"mem_get_info", "memory_allocated", "get_rng_state", "initial_seed"} <= {
        *answers
    }
    assert [name for name in unmeasured if "collective" not in name] == UNMEASURED[
        vendor
    ]  # of one rank


BOTH = """
import json, torch, accel_core
shown = [torch.cuda.is_available(), torch.cuda.is_available.__module__, torch.cuda.device_count()]
try:
    said = accel_core.accelerator("cuda").name
except accel_core.BackendUnavailableError as error:
    said = str(error)
print(json.dumps([shown, accel_core.accelerator("klxpu").name, said]))
"""


def test_cuda_stands_aside_for_what_is_behind_torch_cuda(tmp_path, simulated):
    """Which torch.cuda itself does not show."""
    for name in ("cuda", "klxpu"):
        install_real_plugin(tmp_path, name)
    shown, chosen, said = simulated("klxpu", BOTH, path=[tmp_path]).answer
    assert shown == [True, "torch.cuda", 2]
    assert chosen == "klxpu"
    assert "torch.cuda is overridden by torch_xmlir" in said
