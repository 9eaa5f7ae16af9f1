"""Run the programs of lab/porting in their three forms: lab/records/porting.json keeps what came.

`porting.py [WORDS]` runs every cell, or those that have all these words in their name: `fabric accel npu`;
`-pipeline` is a word that they must not have. A cell is a program, a form, a simulated device and its ranks.
Its losses are those of the accel form on the CPU, it ends with a message that `EXPECTED` has, or it is a
fault and the status is 1. The processes are forks of one that has imported torch under `ACCEL_SIMULATE`; the
variables of ranks are those that launchers set.
"""

from __future__ import annotations

import difflib
import json
import signal
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))
from accel_tests import forks  # noqa: E402
from accel_tests.children import as_rank, clean_environment  # noqa: E402
from accel_tests.ports import free_port  # noqa: E402

PORTS = ROOT / "lab/porting"
RECORD = ROOT / "lab/records/porting.json"
PACKAGES = ("torch", "accelerate", "lightning", "deepspeed")
FORMS, DEVICES = (
    ("cuda", "torch_accelerator", "accel"),
    ("cuda", "acme", "npu", "hpu", "xpu"),
)

#: What starts a program's ranks: an environment of a rank's for each, or the program itself, from the number
#: that it is given; `alone` where one process is no rank.
LAUNCHED, ITSELF, ALONE = "launched", "itself", "alone"
#: Of each program: its folder, how one and two ranks start, and how far a loss may be from the CPU's. Under
#: autocast torch has a list of operators for each device, so some are in bfloat16 on one of the two only.
PROGRAMS = {
    "transformer": ("transformer", {1: ALONE, 2: LAUNCHED}, 2e-2),
    "DDP, launched": ("ddp", {1: LAUNCHED, 2: LAUNCHED}, 1e-6),
    "DDP, spawned": ("ddp", {1: ITSELF, 2: ITSELF}, 1e-6),
    "FSDP2": ("fsdp2", {1: LAUNCHED, 2: LAUNCHED}, 1e-6),
    "diffusion": ("diffusion", {1: ALONE, 2: LAUNCHED}, 1e-6),
    "Fabric": ("fabric", {1: ITSELF, 2: ITSELF}, 2e-2),
    "pipeline": ("pipeline", {1: LAUNCHED, 2: LAUNCHED}, 1e-6),
    "CNN": ("cnn", {1: ALONE, 2: LAUNCHED}, 1e-6),
    "RL": ("rl", {1: ALONE, 2: LAUNCHED}, 1e-6),
}
#: The longest that a cell may take: torch's compiler starts a C++ compiler for each kernel.
SECONDS = 600
#: DeepSpeed on the CPU would first compile collectives in shared memory, for minutes; gloo has them too.
_WITHOUT_SHARED_MEMORY = """
from deepspeed.ops import __compatible_ops__ as operators
operators["deepspeed_shm_comm"] = False
"""
_RUN = """
import runpy, sys
sys.argv[:] = {arguments!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Cell(NamedTuple):
    """One run."""

    program: str
    form: str
    device: str
    ranks: int


#: What does not run, and the words by which that shows: the first row that fits a cell counts.
_OTHERS = DEVICES[1:]
_LAZY = "in lazy mode, the default, torch finds hpu only in programs that import habana_frameworks.torch"
_PLAIN = tuple({*PROGRAMS} - {"diffusion", "Fabric", "pipeline", "transformer"})
EXPECTED: tuple[tuple[dict[str, Any], str, str], ...] = (
    (
        {"form": ("cuda",), "program": ("Fabric",), "device": _OTHERS},
        "`CUDAAccelerator` can not run on your system",
        "Fabric's accelerator `cuda` supports only CUDA devices",
    ),
    (
        {
            "form": ("cuda",),
            "program": tuple({*PROGRAMS} - {"Fabric", "diffusion"}),
            "device": _OTHERS,
        },
        "has no attribute '_cuda_setDevice'",
        "`torch.cuda` supports only CUDA devices",
    ),
    (
        {
            "form": FORMS[:2],
            "program": ("diffusion",),
            "device": ("acme",),
            "ranks": (2,),
        },
        # Both write one checkpoint, which may spoil the one that reads it.
        " reported, ",
        "Accelerate does not support the device: each rank silently trains alone on the CPU",
    ),
    (
        {"form": FORMS[:2], "program": ("diffusion",), "device": ("acme",)},
        "it took cpu",
        "Accelerate does not support the device and silently uses the CPU",
    ),
    (
        {"form": ("torch_accelerator",), "program": ("Fabric",), "device": _OTHERS},
        "it took cpu",
        "Lightning's `auto` does not support the device and silently uses the CPU",
    ),
    (
        {"form": ("torch_accelerator",), "program": ("pipeline",), "device": ("acme",)},
        "it took cpu",
        "DeepSpeed does not support the device and silently uses the CPU",
    ),
    (
        {"form": ("torch_accelerator",), "program": ("pipeline",), "device": ("npu",)},
        "ASCEND_HOME_PATH",
        "DeepSpeed's accelerator for npu needs CANN's compiler, which is not simulated",
    ),
    (
        {"form": ("torch_accelerator",), "program": _PLAIN, "device": ("hpu",)},
        "'NoneType' object has no attribute 'type'",
        _LAZY,
    ),
    (
        {
            "form": ("torch_accelerator",),
            "program": ("transformer",),
            "device": ("hpu",),
        },
        "device type at start of device string: None",
        _LAZY,
    ),
    (
        {"form": ("accel",), "program": ("transformer",), "device": ("hpu",)},
        "Invalid backend: 'hpu_backend'",
        "Gaudi's compiler is not simulated",
    ),
    (
        {"program": ("transformer",), "device": ("cuda", "xpu")},
        "TritonMissing",
        "`torch.compile` needs Triton, which a machine without such a GPU does not have",
    ),
)


def cells() -> Iterator[Cell]:
    """Give each cell, those of one device and form together."""
    for device in DEVICES:
        for form in FORMS:
            for program in PROGRAMS:
                for ranks in (1, 2):
                    yield Cell(program, form, device, ranks)


def run(parent: forks.Forks, cell: Cell) -> dict[str, Any]:
    """Run it in a folder of its own; its losses and its device, or how it ended."""
    folder, starts, _ = PROGRAMS[cell.program]
    start = starts[cell.ranks]
    count, port = (cell.ranks if start == LAUNCHED else 1), free_port()
    variables = {
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "DS_BUILD_OPS": "0",
        **steered(cell),
    }
    # Not the user's folder: a compiler that was killed there leaves half a library to the next program.
    variables["TORCHINDUCTOR_CACHE_DIR"] = str(parent.folder / "inductor")
    ranks = [
        as_rank(rank, count, port) if start == LAUNCHED else {} for rank in range(count)
    ]
    with tempfile.TemporaryDirectory() as here:
        program = [str(PORTS / folder / f"on_{cell.form}.py"), str(cell.ranks)]
        environs = [clean_environment(**{**variables, **rank}) for rank in ranks]
        before = (
            _WITHOUT_SHARED_MEMORY
            if (folder, cell.device) == ("pipeline", "cpu")
            else ""
        )
        ended = parent(
            before + _RUN.format(arguments=program),
            environs,
            folder=here,
            timeout=SECONDS,
        )
    told = [
        line
        for one in ended
        for line in one.stdout.splitlines()
        if line.startswith('{"device"')
    ]
    statuses = [one.returncode for one in ended]
    if len(told) > 1 and not any(statuses):
        return {
            "failed": f"{len(told)} ranks reported, expected one",
            "status": statuses,
        }
    if -signal.SIGKILL in statuses:
        return {"failed": f"it had not ended after {SECONDS} s", "status": statuses}
    if any(statuses) or not told:
        killed = [
            f"ended by {signal.Signals(-status).name}"
            for status in statuses
            if status < 0
        ]
        lines = [
            line for one in ended for line in one.stderr.splitlines() if line.strip()
        ]
        errors = [
            line for line in lines if "Error" in line or "Missing" in line
        ] + killed
        errors = errors or lines or ["no word"]
        reported = "a rank reported, another ended: " if told else ""
        return {"failed": f"{reported}{errors[-1].strip()[:300]}", "status": statuses}
    return dict(json.loads(told[0]))


def steered(cell: Cell) -> dict[str, str]:
    """The variables that choose the device, and that `accel run` sets."""
    ours = {"ACCEL_INTEGRATIONS": "auto"} if cell.form == "accel" else {}
    if cell.device == "cpu":
        return {**ours, "DS_ACCELERATOR": "cpu"}
    # Else kernels draw random numbers of their own, for dropout.
    return {
        **ours,
        "ACCEL_SIMULATE": f"{cell.device}:2",
        "ACCEL_SIMULATE_RANDOM": "host",
    }


def judged(cell: Cell, got: dict[str, Any], on_cpu: dict[str, Any]) -> dict[str, Any]:
    """What the table says of a cell: equal and how near, or why not; `fault` where nobody expected it."""
    expected = next(
        (
            row
            for row in EXPECTED
            if all(getattr(cell, k) in v for k, v in row[0].items())
        ),
        None,
    )
    if "losses" in got and not got["device"].startswith(cell.device):
        got = {"failed": f"it took {got['device']}"}
    if "losses" not in got:
        fits = expected is not None and expected[1] in got["failed"]
        return {"not": expected[2]} if fits and expected else {"fault": got["failed"]}
    far = max(
        (abs(a - b) for a, b in zip(got["losses"], on_cpu["losses"], strict=True)),
        default=0.0,
    )
    if expected is not None or not far <= PROGRAMS[cell.program][2]:
        return {
            "fault": f"expected: {expected[1]}"
            if expected
            else f"losses are {far:.3g} from the CPU's"
        }
    return {"far": far}


def changed(folder: str, form: str) -> int:
    """Lines of the CUDA form that another form changes, drops or adds."""
    texts = [
        (PORTS / folder / f"on_{name}.py").read_text("utf-8").splitlines()
        for name in ("cuda", form)
    ]
    steps = difflib.SequenceMatcher(None, *texts, autojunk=False).get_opcodes()
    return sum(max(b - a, d - c) for kind, a, b, c, d in steps if kind != "equal")


def names_of(cell: Cell) -> list[str]:
    """The words by which a cell is asked for."""
    return " ".join(map(str, cell)).lower().replace(",", "").split()


def keep(kept: dict[str, Any]) -> None:
    """Write the record: these cells, in their order, and the lines that each form changes."""
    lines = {
        program: {form: changed(folder, form) for form in FORMS[1:]}
        for program, (folder, *_) in PROGRAMS.items()
    }
    names = [", ".join(map(str, cell)) for cell in cells()]
    document = {
        "versions": {name: metadata.version(name) for name in PACKAGES},
        "lines": lines,
        "cells": {name: kept[name] for name in names if name in kept},
    }
    RECORD.write_text(
        json.dumps(document, indent=1) + "\n", encoding="utf-8", newline="\n"
    )


def main(words: list[str]) -> int:
    """Run, print a line for each cell, and keep them with those of before that were not run."""
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # ends the forks too, as Ctrl-C does
    record = (
        json.loads(RECORD.read_text("utf-8")) if RECORD.is_file() else {"cells": {}}
    )
    kept, cpu = dict(record["cells"]), {}
    every = list(cells())
    wanted = [
        c
        for c in every
        if all(
            (w.lower().lstrip("-") in names_of(c)) != w.startswith("-") for w in words
        )
    ]
    for form, device in dict.fromkeys((cell.form, cell.device) for cell in wanted):
        mine = [cell for cell in wanted if (cell.form, cell.device) == (form, device)]
        for at, those in (("cpu", mine), (device, mine)):
            todo = [
                c._replace(form="accel", device="cpu") if at == "cpu" else c
                for c in those
            ]
            todo = [c for c in todo if c not in cpu]
            if not todo:
                continue
            environ = clean_environment(OMP_NUM_THREADS="1", **steered(todo[0]))
            with (
                tempfile.TemporaryDirectory() as outputs,
                forks.opened(
                    "import torch, torch._dynamo", environ, Path(outputs)
                ) as parent,
            ):
                for cell in todo:
                    got = run(parent, cell)
                    if at == "cpu":
                        cpu[cell] = got
                        continue
                    name = ", ".join(map(str, cell))
                    kept[name] = judged(
                        cell, got, cpu[cell._replace(form="accel", device="cpu")]
                    )
                    print(name, json.dumps(kept[name]), flush=True)
        keep(kept)
    faults = [name for name, cell in kept.items() if "fault" in cell]
    print(f"{len(kept)} cells, {len(faults)} faults")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
