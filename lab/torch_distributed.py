"""Run the tests of torch.distributed in torch's wheel on simulated devices: `./dev torch-distributed`.

They are the tests of `DistributedTest`, which torch runs for nccl and gloo, in two ranks. Names of tests as
arguments: only those run, and nothing is recorded. The results go to lab/records/torch_distributed.json; a
failure that `KNOWN` does not name fails.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "lab/records/torch_distributed.json"
LOG = Path(tempfile.gettempdir(), "torch_distributed.log")
RANKS = 2
#: Seconds for a start of the ranks, for a test, and for the other rank after one has failed.
START_SECONDS, TEST_SECONDS, OTHER_SECONDS = 300, 150, 10


class Run(NamedTuple):
    """A simulated device, its communication backend, and the backend whose place that takes in the tests."""

    device_type: str
    backend: str
    role: str


RUNS = (
    Run("cuda", "nccl", "nccl"),
    Run("acme", "accl", "nccl"),
    Run("acme", "staged", "gloo"),
)
#: Tests that are not run, and why.
LEFT_OUT = {
    "test_ddp_uneven_inputs": "its convolutions take minutes on a simulated device",
}
#: Tests that fail, and why.
KNOWN = {
    "test_average_parameters": "also starts a group of nccl, which builds for the CPU lack",
    "test_ddp_logging_data_cpu": "torch records gloo's settings only for a backend named gloo",
    "test_ddp_profiling_autograd_profiler": "looks for profiler events of the backend (see above)",
    "test_ddp_profiling_torch_profiler": "looks for profiler events of the backend (see above)",
    "test_monitored_barrier_allreduce_hang": "expects a group of nccl, and its message for a timeout",
    "test_monitored_barrier_allreduce_hang_wait_all_ranks": "expects a group of nccl, and its message for a "
    "timeout",
    "test_monitored_barrier_gloo": "torch allows monitored_barrier only for a backend named gloo",
    "test_monitored_barrier_gloo_subgroup": "torch allows monitored_barrier only for a backend named gloo",
    "test_nccl_high_priority_stream": "passes the options of nccl",
    "test_post_localSGD_optimizer_step_reload": "fails on a busy machine: rank 0 removes the file before "
    "rank 1 reads it",
    "test_sparse_all_reduce_sum": "refused: staged does not support sparse tensors",
    "test_sparse_all_reduce_sum_cuda": "refused: staged does not support sparse tensors",
}


class Job:
    """The ranks of one run, which run one test after another."""

    def __init__(self, run: Run) -> None:
        self._folder = tempfile.TemporaryDirectory()
        for name in ("barrier", "test_dir", "init_dir"):  # torch's tests use them
            Path(self._folder.name, name).mkdir()
        self._log = LOG.open("a")
        port = _free_port()
        self._ranks = [self._start(run, rank, port) for rank in range(RANKS)]
        self._started_tests = 0
        names_of_ranks = [self._read(rank, START_SECONDS) for rank in self._ranks]
        if any(names[0] == "failed" for names in names_of_ranks):
            raise SystemExit(f"{run}: the ranks did not start: {LOG} has their errors")
        self.names: list[str] = names_of_ranks[0]

    def _start(self, run: Run, rank: int, port: int) -> subprocess.Popen[str]:
        accel = str(Path(sys.executable).with_name("accel"))
        program = str(ROOT / "lab/torch_distributed_rank.py")
        variables = {
            "ACCEL_UNUSED": "ignore",
            "BACKEND": run.backend,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
            "RANK": str(rank),
            "TEMP_DIR": self._folder.name,
            "WORLD_SIZE": str(RANKS),
        }
        return subprocess.Popen(
            [accel, "simulate", f"{run.device_type}:{RANKS}", "--", sys.executable, program, *run],
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )  # fmt: skip

    def run(self, name: str) -> list[str]:
        """Run a test in all ranks; return `passed`, `skipped` or `failed`, and the reason."""
        self._started_tests += 1
        for rank in self._ranks:
            assert rank.stdin is not None
            rank.stdin.write(f"{name} {self._folder.name}/{self._started_tests}\n")
            rank.stdin.flush()
        end = time.monotonic() + TEST_SECONDS
        results: list[Any] = []
        for rank in self._ranks:
            results.append(self._read(rank, max(1.0, end - time.monotonic())))
            if results[-1][0] == "failed":
                end = time.monotonic() + OTHER_SECONDS
        # Of two errors, not that of the rank that waited for the other one.
        failed = [result for result in results if result[0] == "failed"]
        failed.sort(key=lambda result: _is_consequence(result[1]))
        return [*failed, *results][0]

    def _read(self, rank: subprocess.Popen[str], seconds: float) -> Any:
        """Return the next line of a rank, read as JSON."""
        assert rank.stdout is not None
        if not select.select([rank.stdout], [], [], seconds)[0]:
            return ["failed", "did not end"]
        line = rank.stdout.readline()
        if not line:
            return ["failed", f"the process ended, status {rank.wait()}"]
        return json.loads(line)

    def end(self) -> None:
        """End the ranks."""
        for rank in self._ranks:
            with suppress(ProcessLookupError):
                os.killpg(rank.pid, signal.SIGKILL)
            rank.wait()
        self._log.close()
        self._folder.cleanup()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _is_consequence(error: str) -> bool:
    return error == "did not end" or "barrier timeout" in error or "reset" in error


def run_tests(run: Run, names: list[str]) -> dict[str, list[str]]:
    """Run the tests, all if `names` is empty; return the result of each by name."""
    results = {}
    job = Job(run)
    for name in names or sorted(set(job.names) - set(LEFT_OUT)):
        results[name] = job.run(name)
        state, reason = results[name]
        print(f"{run.device_type} {run.backend} {name}: {state} {reason[:100]}", flush=True)  # fmt: skip
        if state == "failed":
            # What a failed test leaves behind must not reach the next one.
            job.end()
            job = Job(run)
    job.end()
    return results


def summary(run: Run, results: dict[str, list[str]]) -> dict[str, Any]:
    """Return what is recorded of a run."""
    skipped = Counter(reason for state, reason in results.values() if state == "skipped")  # fmt: skip
    return {
        **run._asdict(),
        "passed": sum(state == "passed" for state, _ in results.values()),
        "skipped": dict(skipped.most_common()),
        "failed": {
            name: reason.splitlines()[0]
            for name, (state, reason) in results.items()
            if state == "failed"
        },
    }


def main(names: list[str]) -> int:
    """Run all, keep the results, and return 1 if a test fails that is not known to."""
    LOG.unlink(missing_ok=True)
    rows = [summary(run, run_tests(run, names)) for run in RUNS]
    failed = {name for row in rows for name in row["failed"]}
    new = sorted(failed - set(KNOWN))
    if not names:
        record = {
            "torch": metadata.version("torch"),
            "ranks": RANKS,
            "left_out": LEFT_OUT,
            "known": {name: why for name, why in KNOWN.items() if name in failed},
            "runs": rows,
        }
        RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8", newline="\n")  # fmt: skip
    if new:
        print(f"failed, and not known to: {', '.join(new)}. Errors: {LOG}")
    return int(bool(new))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
