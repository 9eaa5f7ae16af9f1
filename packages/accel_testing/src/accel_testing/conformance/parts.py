"""The parts of a rank's program and its report on each; `launching` reads it.

The report is a line of JSON for each part, in the rank's own file. It is written as soon as the part is done,
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

__all__ = ["BEGINNING", "do"]

#: What stands for a part where a rank could not even begin.
BEGINNING = "beginning"
_LONGEST = 1500


def do(
    folder: Path,
    begin: Callable[[], tuple[Any, ...]],
    parts: Mapping[str, Callable[..., None]],
) -> NoReturn:
    """Call `begin`, run each part with its result, and end the process with status 0.

    A part that raises is reported, and the next part runs. If `begin` raises, no part runs.
    """
    processes.end_with_parent(os.getppid())
    with (folder / f"{os.environ['RANK']}.jsonl").open("a", encoding="utf-8") as file:
        given: list[Any] = []
        for name, work in {BEGINNING: lambda: given.extend(begin()), **parts}.items():
            began = time.monotonic()
            told = _told(work, given)
            line = {"part": name, **told, "seconds": time.monotonic() - began}
            file.write(json.dumps(line) + "\n")
            file.flush()
            if name == BEGINNING and any(told.values()):
                break
    os._exit(0)  # what a backend does as it is taken down is not what is asked here


def _told(work: Callable[..., object], given: list[Any]) -> dict[str, str]:
    """`problem`, what is not as promised, and `unclaimed`, why it was not asked; empty where all is well."""
    try:
        work(*given)
    except AssertionError as error:
        return {"problem": str(error), "unclaimed": ""}
    except pytest.skip.Exception as reason:
        return {"problem": "", "unclaimed": str(reason).removeprefix(NOT_CLAIMED)}
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # torch's CheckpointException is no Exception
        return {"problem": _words(error), "unclaimed": ""}
    return {"problem": "", "unclaimed": ""}


def _words(error: BaseException) -> str:
    """Give the error's message, with only the last line of other ranks' tracebacks."""
    text = str(error).strip()
    if "Traceback (most recent call last)" in text:
        text = text.splitlines()[-1]
    return f"{type(error).__name__}: {text}"[:_LONGEST]
