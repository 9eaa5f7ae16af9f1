"""Run foreign software on simulated devices: lab/records/frameworks.json keeps what came.

`frameworks.py [WORDS]` runs everything, or what has all these words in its name: `accelerate acme`.
Needs the environment of the session trainers; `./dev frameworks` starts it there.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import metadata, util
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HERE = Path(__file__).with_name("frameworks")
RECORD = ROOT / "lab/records/frameworks.json"
PACKAGES = ("torch", "accelerate", "transformers", "lightning")

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
#: The scripts of accelerate.test_utils.scripts. Those in `external_deps` want the hub, or DeepSpeed.
ACCELERATES = (
    "test_cli", "test_ops", "test_script", "test_sync", "test_distributed_data_loop", "test_ddp_comm_hook",
    "test_merge_weights", "test_notebook",
)  # fmt: skip
DEMOS = (
    "BoringModel",
    "ManualOptimBoringModel",
    "LightningTransformer",
    "LightningLSTM",
)


def runs() -> Iterator[tuple[tuple[str, str, str, int], list[str]]]:
    """Give each run: framework, what of it, device and ranks, with Python's arguments."""
    folder = (
        Path(str(util.find_spec("accelerate").origin)).parent / "test_utils/scripts"
    )  # type: ignore[union-attr]
    for device in ("cuda", "acme"):
        for ranks in (1, 2):
            several = [*TORCHRUN, str(ranks)] if ranks > 1 else []
            launch = ["-m", "accelerate.commands.launch", "--num_processes", str(ranks)]
            launch += ["--multi_gpu"] if ranks > 1 else []
            for name in ACCELERATES:
                script = str(folder / f"{name}.py")
                theirs, ours = (
                    [*launch, script],
                    [*several, str(HERE / "chosen_first.py"), script],
                )
                if (
                    name == "test_notebook"
                ):  # which starts its ranks itself, and is for pytest
                    theirs = ours = [
                        "-m",
                        "pytest",
                        "-q",
                        "-p",
                        "no:cacheprovider",
                        script,
                    ]
                yield (
                    ("Accelerate", name, device, ranks),
                    theirs if device == "cuda" else ours,
                )
            script = str(HERE / "transformers_trainer.py")
            yield ("Transformers", "Trainer", device, ranks), [*several, script]
            yield (
                ("Transformers", "Trainer,bf16", device, ranks),
                [*several, script, "bf16"],
            )
            for name in DEMOS:
                script = str(HERE / "lightning_demos.py")
                yield ("Lightning", name, device, ranks), [script, name, str(ranks)]
        yield ("torch.utils.data", "DataLoader", device, 1), [str(HERE / "loading.py")]


def run(arguments: list[str], device: str, ranks: int) -> dict[str, Any]:
    """Run it as a user does: `accel simulate`, in a folder of its own."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ACCEL_", "DS_"))
    }
    kept |= {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "ACCELERATE_NUM_PROCESSES": str(ranks),
    }
    kept["ACCEL_SIMULATE_MEMORY_MB"] = (
        "2048"  # the LSTM of the demos takes 170, twice to step
    )
    simulated = ["-m", "accel_core", "simulate", f"{device}:2", "--"]
    command = [sys.executable, *simulated, sys.executable, *arguments]
    began = time.monotonic()
    with TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=kept,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"status": "no end in 300 s", "seconds": 300}
    told = {"status": done.returncode, "seconds": round(time.monotonic() - began)}
    return (
        told if done.returncode == 0 else {**told, **_fault(done.stdout + done.stderr)}
    )


def _fault(output: str) -> dict[str, str]:
    """Give the first error, where it was raised, and where a package beside torch asked for it."""
    lines = re.sub(r"(?m)^\[rank\d+\]: ?", "", output).splitlines()
    ends = [
        n
        for n, line in enumerate(lines)
        if re.match(r"(E +)?[\w.]*(Error|Exception|Failed)\b", line)
    ]
    end = ends[0] if ends else len(lines) - 1
    places = [
        f"{found[1]}:{found[2]}"
        for line in lines[:end]
        if (
            found := re.search(
                r'(?:File "|^)(?:.*/site-packages/)(\S+?\.py)(?:", line |:)(\d+)', line
            )
        )
    ]
    beside = [place for place in places if not place.startswith("torch/")]
    said = re.sub(r"^E +", "", lines[end].strip())[:300] if lines else ""
    return {"said": said, "at": (places or [""])[-1], "asked by": (beside or [""])[-1]}


def main(words: list[str]) -> int:
    """Run, print a line for each, and keep them with those of before that were not run."""
    record = (
        json.loads(RECORD.read_text(encoding="utf-8"))
        if RECORD.is_file()
        else {"runs": {}}
    )
    kept = dict(record["runs"])
    wanted = {}
    for parts, arguments in runs():
        name = " ".join(map(str, parts))
        wanted[name] = arguments
        if words and not all(word.lower() in name.lower().split() for word in words):
            continue
        kept[name] = run(arguments, *parts[2:])
        print(name, json.dumps(kept[name]), flush=True)
    versions = {name: metadata.version(name) for name in PACKAGES}
    document = {
        "versions": versions,
        "runs": {name: kept[name] for name in wanted if name in kept},
    }
    RECORD.write_text(
        json.dumps(document, indent=1) + "\n", encoding="utf-8", newline="\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
