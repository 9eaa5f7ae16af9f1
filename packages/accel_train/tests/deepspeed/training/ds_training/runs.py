"""Starts pairs of ranks, and keeps what they report, once a session whichever process of xdist asks first."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from accel_tests.ports import free_port

from ds_training.configurations import CONFIGURATIONS

__all__ = ["BACKENDS", "PATCHED", "RANKS", "Trainings", "locked"]

RANKS = 2
#: DeepSpeed's own CPU accelerator, ours, and simulated devices that DeepSpeed has never heard of: one with
#: all that a GPU has, and one without streams, events, page-locked memory and collectives.
BACKENDS = ("reference", "cpu", "acme", "plain")
#: The device `acme` and no activation: a DeepSpeed with one of the patches in contrib/ finds our accelerator.
PATCHED = ("entry points", "native")
#: Seconds that one configuration may take before the ranks say where they are and end.
PATIENCE = 600


@dataclass
class Trainings:
    """What the ranks of each training report, by backend and configuration."""

    #: A folder that all processes of this session see.
    folder: Path
    #: The variables of a backend's processes.
    environ: Callable[[str], Mapping[str, str]]

    def reports(self, backend, name, *, resumed=False, alone=False):
        """By rank; raises `AssertionError` with the ranks' output if the training failed.

        The first call trains all configurations of the day, or of the night; with `alone` only this one.
        """
        if resumed:
            self.reports(backend, name)  # it leaves the checkpoint
        night = CONFIGURATIONS[name].by_night
        names = [each for each, configuration in CONFIGURATIONS.items() if configuration.by_night == night]
        parts = (backend, "resumed" * resumed, "by night" * night, name * alone)
        home = self.folder / ", ".join(filter(None, parts))
        with locked(Path(f"{home}.lock")):
            if not (home / "done").exists():
                home.mkdir(exist_ok=True)
                self._train(backend, home, resumed, [name] if alone else names)
                (home / "done").touch()
        error = home / f"{name}.error"
        assert not error.exists(), f"{name} on {backend}: {error.read_text()}"
        return [json.loads((home / f"{name}.{rank}.json").read_text()) for rank in range(RANKS)]

    def _train(self, backend, home, resumed, names):
        """All of these in one pair; after a failure another pair takes the rest."""
        checkpoints = self.folder / "checkpoints" / backend
        left = [name for name in names if CONFIGURATIONS[name].saves or not resumed]
        if resumed:  # what failed before has no checkpoint
            left = [name for name in left if (checkpoints / name / "latest").exists()]
        while left:
            order = home / "order.json"
            order.write_text(
                json.dumps(
                    {
                        "activate": backend not in ("reference", *PATCHED),
                        "configurations": left,
                        "folder": str(home),
                        "checkpoints": str(checkpoints),
                        "resumed": resumed,
                        "patience": PATIENCE,
                    }
                )
            )
            output = _run(_commands(order, resumed), self.environ(backend), home)
            left = self._failed_and_after(left, home, output)

    @staticmethod
    def _failed_and_after(names, home, output):
        """Note why the first that is not finished failed; give those behind it."""
        for place, name in enumerate(names):
            answers = [home / f"{name}.{rank}.json" for rank in range(RANKS)]
            told = [json.loads(answer.read_text()) for answer in answers if answer.exists()]
            errors = [report["error"] for report in told if "error" in report]
            if errors or len(told) < RANKS:
                (home / f"{name}.error").write_text("\n".join(errors) or f"the ranks ended.\n{output}")
                return names[place + 1 :]
        return []


def _commands(order, resumed):
    """What to start: each rank by itself, or, to go on from a checkpoint, both by torch's own launcher."""
    port = free_port()
    if resumed:
        run = ["torch.distributed.run", f"--nproc-per-node={RANKS}", f"--master-port={port}", "-m"]
        return [(["-m", *run, "ds_training.worker", str(order)], {})]
    shared = {"WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1"}
    return [
        (
            ["-m", "ds_training.worker", str(order)],
            {**shared, "MASTER_PORT": str(port), "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(RANKS)
    ]


def _run(commands, environ, home):
    """Run until all have ended, or one has failed; what they printed last."""
    logs = [home / f"output.{number}" for number in range(len(commands))]
    with contextlib.ExitStack() as stack:
        processes = []
        for (arguments, variables), log in zip(commands, logs, strict=True):
            file = stack.enter_context(log.open("w"))
            process = subprocess.Popen(
                [sys.executable, *arguments],
                env={**environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            stack.callback(_end, process)
            processes.append(process)
        while None in (codes := [process.poll() for process in processes]) and not any(codes):
            time.sleep(0.1)
        if any(codes):
            time.sleep(2)  # the other rank may be about to say what it saw of it
    return "\n".join(f"{log.name}: {log.read_text()[-6000:]}" for log in logs)


def _end(process):
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def locked(path):
    """Only one process at a time is inside; the lock goes with the process that has it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
