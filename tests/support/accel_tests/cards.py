"""Score cards as users get them, `accel verify NAME --json`, and those on record, which the docs tell."""

import json
from pathlib import Path

from accel_simulated import DEVICES
from accel_testing.conformance.document import to_record
from accel_tests.children import run_python, without
from accel_tests.on_simulated import environment

TREE = Path(__file__).parents[3]
#: One for each backend and device: `./dev reports` writes them.
RECORDS = TREE / "lab/records/reports"
#: What fails on the simulated devices, each with its reason.
EXPECTED = TREE / "packages/accel_simulated/tests/device/expected"
#: Ranks, and no frameworks: those are in environments of their own.
LEVEL = 3

#: Each simulated device by its backend: what nobody declares, the built-in generic backend drives.
SIMULATED = {name: "generic" if name in ("acme", "plain") else name for name in DEVICES}


def run_card(backend, environ, expected=None, only=()):
    """What `accel verify BACKEND` says, as a record keeps it. Raises `AssertionError` where it cannot run."""
    arguments = [
        "-m", "accel_core", "verify", backend, "--level", str(LEVEL), "--json",
        *(["--expected", str(expected)] if expected else []), *(f"--check={name}" for name in only),
    ]  # fmt: skip
    done = run_python(arguments, environ, timeout=600)
    assert done.returncode in (0, 1), done.stderr
    return to_record(json.loads(done.stdout))


def run_simulated(device):
    """The card of a simulated device, with what is expected to fail there, although another one is pinned."""
    file = EXPECTED / f"{device}.toml"
    pinned = {**environment(device), "DS_ACCELERATOR": "cpu"}
    return run_card(device, pinned, file if file.exists() else None)


def run_processor():
    """The card of `cpu`, as under a launcher of two ranks: of two devices wherever it runs."""
    return run_card(
        "cpu", {**without("ACCEL_", "DS_"), "LOCAL_SIZE": "2", "LOCAL_RANK": "0"}
    )


def on_record(name):
    """The card that the docs tell of."""
    return json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))


#: Checks that a card leaves out, by how their names begin: the stand-in for CANN lacks kernels of theirs, and
#: that spoils the rest; eight end a process of TorchTPU's, one fails half of the time, and torch's samples
#: would compile for hours.
LEFT_OUT = {
    "npu-real": ("compute.numbers.", "compute.reductions.", "compute.forms.", "compute.samples.",
                 "compute.randomness.numbers_"),
    "tpu-real": (
        "compute.numbers.long_rows", "interface.answers.random_states", "compute.reductions.",
        "compute.forms.every_length", "compute.forms.many_rows", "compute.samples.",
    ),
}  # fmt: skip


def require_as_recorded(card, name):
    """Raise `AssertionError` where a check is not good, or ends otherwise than the docs say."""
    good = ("passed", "not claimed", "expected failure")
    bad = [
        check
        for check, outcome in card["outcomes"].items()
        if outcome not in good
        and not (outcome == "skipped" and check.startswith(LEFT_OUT.get(name, ())))
    ]
    assert not bad, "\n".join(f"{check}: {card['reasons'][check]}" for check in bad)
    said = on_record(name)["outcomes"]
    other = {
        check: how for check, how in card["outcomes"].items() if said.get(check) != how
    }
    assert (other, said.keys() - card["outcomes"].keys()) == ({}, set()), (
        "`./dev reports` writes the records"
    )
