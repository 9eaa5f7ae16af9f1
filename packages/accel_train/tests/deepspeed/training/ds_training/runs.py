"""Pairs of ranks in forks, and what they report; once a session, whichever process of xdist asks first."""

import contextlib
import fcntl
import json
from pathlib import Path

from accel_tests.children import as_rank
from accel_tests.ports import free_port

from ds_training.configurations import CONFIGURATIONS

RANKS = 2
#: DeepSpeed's own CPU accelerator, ours, and simulated devices that DeepSpeed has never heard of: one with
#: all that a GPU has, and one without streams, events, pinned memory and collectives.
BACKENDS = ("reference", "cpu", "acme", "plain")
#: The device `acme` and no activation: a DeepSpeed with this patch of lab/contrib/ finds our accelerator.
PATCHED = "native"
DEEPSPEEDS = ("cuda", "hpu", "klxpu", "mlu", "mps", "npu", "sdaa", "supa", "xpu")
#: The classes of our plugins for devices that DeepSpeed cannot drive itself, or that lack float64.
PLUGINS = {
    "mps": "accel_mps.accelerator.MPSAccelerator",
    "neuron": "accel_neuron.accelerator.NeuronAccelerator",
}
#: Classes of DeepSpeed's interface, its own and small ones, on the simulated device named before a comma; and
#: those plugins, without a class to put in their place. They train `STAGES` alone.
CLASSES = {
    **{
        name: f"deepspeed.accelerator.{name}_accelerator.{name.upper()}_Accelerator"
        for name in DEEPSPEEDS
    },
    "acme, TPU": "ds_training.shapes.TPU_Accelerator",
    "musa, MUSA": "ds_training.shapes.MUSA_Accelerator",
    **{f"{name}, plugin": "" for name in PLUGINS},
}
#: The reference without float64, in which DeepSpeed adds up its norms, but not on Metal.
SINGLE = "single"
STAGES = [f"ZeRO {stage}" for stage in range(4)]
WORK = "from ds_training.worker import main\nmain(**{order!r})"


class Trainings:
    """What the ranks of each training report, by backend and configuration."""

    def __init__(self, folder, start):
        """A folder that all processes of this session see; and what runs code as a backend's ranks."""
        self.folder, self.start = folder, start

    def reports(self, backend, name, *, resumed=False):
        """By rank; raises `AssertionError` with the ranks' output if the training failed.

        The first call trains all configurations of the day, or of the night; of `PATCHED` only this one.
        """
        if resumed:
            self.reports(backend, name)  # it leaves the checkpoint
        night = CONFIGURATIONS[name].by_night and backend in BACKENDS
        home = self.folder / f"{backend}{', resumed' * resumed}{', by night' * night}"
        with locked(Path(f"{home}.lock")):
            if not home.exists():
                home.mkdir()
                few = [name] if backend == PATCHED else STAGES
                self._train(
                    backend,
                    home,
                    resumed,
                    _names(night, resumed) if backend in BACKENDS else few,
                )
        answers = [home / f"{name}.{rank}.json" for rank in range(RANKS)]
        assert all(answer.exists() for answer in answers), (home / "output").read_text()
        return [json.loads(answer.read_text()) for answer in answers]

    def _train(self, backend, home, resumed, names):
        """All of these in one pair, which the first failure ends."""
        order = {"names": names, "folder": str(home), "resumed": resumed}
        order |= {
            "activate": backend not in ("reference", SINGLE, PATCHED),
            "single": backend == SINGLE,
        }
        order |= {
            "checkpoints": str(self.folder / "checkpoints" / backend),
            "written": CLASSES.get(backend),
        }
        port = free_port()
        places = [as_rank(rank, RANKS, port) for rank in range(RANKS)]
        ended = self.start(backend, WORK.format(order=order), places)
        (home / "output").write_text(
            "\n".join(end.stdout[-3000:] + end.stderr[-6000:] for end in ended)
        )


def _names(night, resumed):
    of_then = (each for each in CONFIGURATIONS.values() if each.by_night == night)
    return [each.name for each in of_then if each.saves or not resumed]


@contextlib.contextmanager
def locked(path):
    """Only one process at a time is inside; the lock goes with the process that has it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
