"""The staged process group on simulated devices, under its own name and under a vendor's name."""

from pathlib import Path

import pytest

PROGRAMS = Path(__file__).with_name("programs")

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
            f"ValueError: the tensor has {in_all + 4} bytes, expected {in_all} "
            f"(number of parts: {processes}, size of each part: 4)"
        )
        splits = (
            f"the splits {[2] * processes} for {processes} ranks do not add up to 2, "
            "the size of dimension 0"
        )
        assert said["splits"].startswith(f"ValueError: {splits}")
        assert said["sparse"].startswith(
            "UnsupportedError: a tensor of layout torch.sparse_coo cannot be staged"
        )


def test_a_missing_rank_is_named(simulated):
    answers = simulated("plain", f"{CHECKS}_life:lost", "plain", processes=2).answers
    assert [kind for kind, _ in answers[0]["said"]] == ["CommunicationError"] * 2
    first = answers[0]["said"][0][1]
    for words in ("rank 0 of 2 (backend staged, over gloo, for plain)",
                  "all_reduce of 1 tensor (float32), 16 bytes", "imed out",
                  "check the output of the other ranks"):  # fmt: skip
        assert words in first


def test_fully_sharded_training_equals_the_cpu(simulated):
    """On mlu's module: FSDP2 takes streams from `torch.<device>`, and asks nobody else for them."""
    run = simulated("mlu", f"{CHECKS}_training:fully_sharded", "mlu", processes=2)
    assert run.answers == [{"equal": True}] * 2


@pytest.mark.parametrize("vendor", ["acme", "cuda"])
def test_a_vendors_collectives_are_those_of_staged(vendor, simulated):
    check = f"{CHECKS}_training:of_the_vendor"
    run = simulated(vendor, check, vendor, processes=2, timeout=400)
    for told in run.answers:
        assert told["collectives"] > 500
        assert told["divided gradient"] == 256.0
        assert told["losses"] == [told["losses"][0]] * 2


def test_objects_are_gathered_with_options_of_nccl_and_torchs_debug_level(simulated):
    """With DETAIL torch logs a hash of each pickled object; builds without NCCL lack its function."""
    variables = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    program = PROGRAMS / "nccl_options.py"
    assert simulated("cuda", program, environ=variables).answer == {
        "is_high_priority_stream": True,
        "gathered": ["object"],
    }
