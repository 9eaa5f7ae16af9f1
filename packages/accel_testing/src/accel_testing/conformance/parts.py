"""Run the parts of a rank's program, and write the report on each part, which `launching` reads.

Each rank has a file with one line of JSON for each part. The line is written as soon as the part is done,
because the next part may hang or crash the process.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest

from accel_core.sandbox import processes
from accel_testing.conformance.claims import NOT_CLAIMED

__all__ = ["BEGINNING", "run_parts"]

#: The name in the report for the code that runs before the first part.
BEGINNING = "beginning"
_LONGEST = 1500


def run_parts(
    folder: Path,
    begin: Callable[[], tuple[Any, ...]],
    parts: Mapping[str, Callable[..., None]],
) -> NoReturn:
    """Run the parts of a rank's program, and end the process with status 0.

    Each part is called with the result of `begin`. If a part raises an error, the error is reported and the
    next part runs. If `begin` raises an error, no part runs.
    """
    processes.end_with_parent(os.getppid())
    with (folder / f"{os.environ['RANK']}.jsonl").open("a", encoding="utf-8") as file:
        arguments: list[Any] = []
        steps = {BEGINNING: lambda: arguments.extend(begin()), **parts}
        for name, step in steps.items():
            began = time.monotonic()
            outcome = _outcome(step, arguments)
            report = {"part": name, **outcome, "seconds": time.monotonic() - began}
            file.write(json.dumps(report) + "\n")
            file.flush()
            if name == BEGINNING and any(outcome.values()):
                break
    os._exit(0)  # a backend may fail during its shutdown, which no part checks


def _outcome(work: Callable[..., object], arguments: list[Any]) -> dict[str, str]:
    """Run `work`, and return the reason if it failed (`problem`) or was skipped (`unclaimed`)."""
    try:
        work(*arguments)
    except AssertionError as error:
        return {"problem": str(error), "unclaimed": ""}
    except pytest.skip.Exception as skipped:
        return {"problem": "", "unclaimed": str(skipped).removeprefix(NOT_CLAIMED)}
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # torch's CheckpointException is not an Exception
        return {"problem": _error_text(error), "unclaimed": ""}
    return {"problem": "", "unclaimed": ""}


def _error_text(error: BaseException) -> str:
    """Return the error's type and message, with only the last line of other ranks' tracebacks."""
    text = str(error).strip()
    if "Traceback (most recent call last)" in text:
        text = text.splitlines()[-1]
    return f"{type(error).__name__}: {text}"[:_LONGEST]
