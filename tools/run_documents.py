"""Run what the documents tell readers to write: Python blocks, and commands in blocks of language `sh`.

`run_documents.py [FILE…]`: each document in a folder of its own and in a fork of one process that has
imported torch, its blocks one after another in one namespace. Comments that a page does not show say what a
block needs and what is not run, and why:

    <!--- invisible-code-block: python
    model = torch.nn.Linear(2, 2)
    --->
    <!--- skip: next "needs three hosts" -->

`step_through(page, "train_cuda.py", "train.py")` applies a tutorial's diffs to a script beside it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple
from unittest import SkipTest

from sybil import Document, Example, Sybil
from sybil.example import NotEvaluated
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser

ROOT = Path(__file__).resolve().parent.parent
#: Seconds for a document: the longest trains for some.
LIMIT = 300
#: Before what is said of a document at its end: what its blocks print is shown where one fails.
SUMMARY = "documents: "
#: Seconds between two signs of life.
BEAT = 10.0


def documents() -> list[Path]:
    """Return the documents that a reader tries things from.

    The notes of the backends are left out: their blocks run in the pages that include them.
    """
    pages = sorted((ROOT / "docs").rglob("*.md"))
    return [
        ROOT / "README.md",
        *(page for page in pages if page.parent.name != "notes"),
        *sorted(ROOT.glob("p*/*/README.md")),
    ]


def run_command(example: Example) -> None:
    """Run a block of commands as a shell does, and fail with what it printed.

    `statuses` of the page are those that a command may end with; by default it is 0.
    """
    statuses = example.namespace.get("statuses", {0})
    ends = "-u" if len(statuses) > 1 else "-eu"
    done = subprocess.run(
        ["bash", ends, "-o", "pipefail", "-c", str(example.parsed)],
        check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode not in statuses or "Traceback" in done.stdout:
        raise AssertionError(f"exit status {done.returncode}:\n{done.stdout}")


def parsed(path: Path) -> Document:
    parsers = [
        PythonCodeBlockParser(),
        CodeBlockParser("sh", run_command),
        SkipParser(),
    ]
    return Sybil(parsers=parsers).parse(path)


def missing(*modules: str) -> str:
    """For `skip: next if(missing("deepspeed"), …)`: which of the modules is not installed; or empty."""
    return next((name for name in modules if find_spec(name) is None), "")


def step_through(page: Path, start: str, name: str) -> None:
    """Apply a page's diffs to the script `start` beside it, and save it here.

    A file of the new name beside the page must be the same.
    """
    script = (page.parent / start).read_text("utf-8")
    for diff in re.findall(
        r"^```diff\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
    ):
        for hunk in diff.split("@@\n"):
            lines = hunk.splitlines(keepends=True)
            old = "".join(line[1:] or line for line in lines if line[0] != "+")
            new = "".join(line[1:] or line for line in lines if line[0] != "-")
            if script.count(old) != 1:
                raise AssertionError(f"stands {script.count(old)} times:\n{old}")
            script = script.replace(old, new)
    whole = page.parent / name
    if whole.exists() and script != whole.read_text("utf-8"):
        raise AssertionError(
            f"{whole} is not the script after the last step:\n{script}"
        )
    Path(whole.name).write_text(script, "utf-8")


def run(path: Path) -> int:
    """Run one document here, in this process; print what failed and a line of what was done."""
    document = parsed(path)
    # As a script's own: what a block defines can be pickled by its name.
    script = sys.modules["__main__"] = ModuleType("__main__")
    document.namespace = vars(script)
    document.namespace.update(missing=missing, step_through=step_through, page=path)
    done, skipped, failed = 0, [], 0
    for example in document.examples():
        where = f"{path.relative_to(ROOT).as_posix()}:{example.line}"
        try:
            example.evaluate()
        except NotEvaluated:
            continue
        except SkipTest as reason:
            skipped.append(f"  not run: {where}: {reason}")
        except BaseException as error:  # a block may call sys.exit()
            failed += 1
            lines = traceback.format_exception(error)
            print(f"{where}: failed\n{''.join(lines[-8:])}")
        else:
            done += is_block(example)
    print(
        "\n".join(
            (f"\n{SUMMARY}{path.relative_to(ROOT).as_posix()}: {done} run", *skipped)
        )
    )
    return failed


def is_block(example: Example) -> bool:
    """Whether a reader sees it: not an instruction to us."""
    return example.document.text[example.region.start :].lstrip().startswith("```")


class Apart(NamedTuple):
    """A document that a fork of this process runs, in a folder of its own."""

    path: Path
    folder: Path
    output: Path
    began: float


def begin(path: Path) -> tuple[int, Apart]:
    """Fork, and run one document there; give the process."""
    folder = Path(tempfile.mkdtemp(prefix="documents-"))
    apart = Apart(path, folder, folder.with_suffix(".txt"), time.monotonic())
    if process := os.fork():
        return process, apart
    status = 1
    try:
        os.chdir(folder)
        with apart.output.open("w") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        signal.alarm(LIMIT)
        sys.argv = [str(path)]
        status = min(1, run(path))
        sys.stdout.flush()
    finally:
        os._exit(status)


def end(apart: Apart, status: int) -> bool:
    """Print what a document's process did; give whether it failed."""
    output = apart.output.read_text(errors="replace")
    if os.WIFSIGNALED(status):
        late = os.WTERMSIG(status) == signal.SIGALRM
        what = (
            f"not at its end after {LIMIT} s"
            if late
            else f"ended by signal {os.WTERMSIG(status)}"
        )
        output = f"{apart.path.name}: {what}\n{output}"
    print((output if status else output.rpartition(SUMMARY)[2]).strip(), flush=True)
    apart.output.unlink()
    shutil.rmtree(apart.folder, ignore_errors=True)
    return status != 0


def run_all(paths: Sequence[Path]) -> int:
    """Run documents, as many at once as there are cores; give 1 if one failed."""
    waiting, running, failed = list(reversed(paths)), {}, False
    told = time.monotonic()
    while waiting or running:
        while waiting and len(running) < (os.cpu_count() or 1):
            running.update([begin(waiting.pop())])
        process, status = os.waitpid(-1, os.WNOHANG)
        if process in running:
            failed |= end(running.pop(process), status)
            told = time.monotonic()
        elif time.monotonic() - told > BEAT:
            told = time.monotonic()
            lasting = (
                f"{apart.path.name}: {told - apart.began:.0f} s"
                for apart in running.values()
            )
            print(f"     … {', '.join(lasting)} so far", flush=True)
        else:
            time.sleep(0.05)
    return int(failed)


def with_blocks(paths: Iterable[Path]) -> list[Path]:
    """Documents that have something to run: starting Python for the others is not worth it."""
    return [
        path
        for path in paths
        if "```python" in (text := path.read_text("utf-8")) or "```sh" in text
    ]


def main(arguments: Sequence[str]) -> int:
    given = [Path(name).resolve() for name in arguments] or with_blocks(documents())
    os.environ["PATH"] = os.pathsep.join(
        (str(Path(sys.executable).parent), os.environ["PATH"])
    )
    if find_spec("torch"):
        import torch  # noqa: F401 - once for all: two seconds for each document otherwise
    return run_all(given)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
