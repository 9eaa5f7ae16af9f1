"""torch.compile with the device's compiler on simulated devices, a process for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", minversion="2.13")

from accel_tests.on_simulated import run_on

from accel_simulated import CannotBuildError

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent


def on(device, function, **options):
    try:
        return run_on(device, f"compiled:{function}", device, path=[HERE], timeout=300, **options)
    except CannotBuildError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("device", "compiler", "interface"),
    [
        ("plain", "aot_eager", "accel_train.device_interface"),
        pytest.param(
            "acme",
            "inductor",
            "accel_simulated.inductor",
            marks=pytest.mark.nightly(
                reason="inductor compiles C++ for each graph; by day the way without it"
            ),
        ),
    ],
)
def test_each_way_trains_as_the_cpu_does_by_the_same_compiler(device, compiler, interface):
    answer = on(device, "everything").answer
    count = answer["interface"][1]
    assert answer == {
        "compiler": compiler,
        "equal": {"door": True, "dynamic": True},
        "interface": [interface, count, 0],
        "cpu graph": [2.0],
        "default": [compiler, compiler, True],
        "after": "inductor",
    }


def test_inductor_where_it_has_no_code_is_one_sentence_before_compiling():
    block, door, after = on("plain", "refused").answer
    sentence = (
        "UnsupportedError: inductor has no code for device type 'plain': neither torch nor the vendor "
        "registers any. aot_eager compiles for every device: "
    )
    assert block.startswith(sentence)
    assert door.startswith(f"BackendCompilerFailed: backend='accel' raised:\n{sentence}")
    assert after == "inductor"


@pytest.mark.nightly(reason="inductor compiles C++ for each graph")
def test_the_generic_interface_serves_inductor_and_streams():
    assert on("acme", "ours").answer == {
        "stays": True,
        "equal": True,
        "devices": [2, 1, 0, 1],
        "stay": [1, 1, 1],
        "streams": [3.0, 3.0],
    }


@pytest.mark.nightly(reason="four ranks compile; by day one does")
def test_two_ranks_equal_the_cpus():
    of_acme = on("acme", "rank", processes=2).answers
    assert of_acme == on("acme", "rank", processes=2, environ={"DS_ACCELERATOR": "cpu"}).answers
    assert of_acme[0][1:] == of_acme[1][1:]
