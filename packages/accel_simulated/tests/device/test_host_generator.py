"""With ACCEL_SIMULATE_RANDOM=host a device draws the numbers of the CPU's generator."""

from pathlib import Path

PROGRAMS = Path(__file__).with_name("programs")
HOST = {"ACCEL_SIMULATE_RANDOM": "host"}


def test_the_devices_generators_draw_the_numbers_of_the_cpu(simulated):
    program = PROGRAMS / "host_generator.py"
    assert simulated("acme", program, environ=HOST).answer == {
        "equal draws": [True, True, True],
        "state restored": True,
        "default generator": True,
    }


def test_dtensor_draws_new_numbers_each_time(simulated):
    """DTensor restores the CPU's generator after each draw; `trunc_normal_` draws until all numbers fit."""
    program = PROGRAMS / "dtensor_random.py"
    assert simulated("acme", program, environ=HOST, timeout=120).answer == {
        "truncated": True,
        "second draw is the same": False,
    }
