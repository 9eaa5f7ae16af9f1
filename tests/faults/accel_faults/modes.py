"""What a user runs, and what is seen of it: what was chosen, what was said, what is left of the process."""

import contextlib
import enum
import json
import os
import re
import subprocess
import uuid
from dataclasses import dataclass, field
from typing import Any

from accel_tests import children, processes

from accel_faults.catalogue import DEADLINE, Kind
from accel_faults.installed import install


class Mode(enum.Enum):
    """What is run where the two plugins are installed."""

    IN_PROCESS = "get_accelerator()"
    ISOLATED = "ACCEL_PROBE=isolated"
    LIST = "accel list"
    WHY = "accel why"
    WHY_NAME = "accel why NAME"
    INFO = "accel info"
    OPS = "accel ops"
    ENV = "accel env"
    DRY_RUN = "accel run --dry-run"
    DOCTOR = "accel doctor"

    @property
    def is_program(self):
        """Whether it is a user's own process that calls `get_accelerator()`."""
        return self in (Mode.IN_PROCESS, Mode.ISOLATED)

    @property
    def deadline(self):
        """Seconds that a probe has where a fault takes longer: the real torch takes one by itself."""
        return 10.0 if self is Mode.DRY_RUN else DEADLINE

    @property
    def arguments(self):
        """What follows `accel`."""
        return _COMMANDS[self]


_COMMANDS = {
    Mode.LIST: ["list", "--json"],
    Mode.WHY: ["why", "--json"],
    Mode.WHY_NAME: ["why", "faulty", "--json"],
    Mode.INFO: ["info", "--json"],
    Mode.OPS: ["ops", "--json"],
    Mode.ENV: ["env", "--format", "json"],
    Mode.DOCTOR: ["doctor", "--json"],
    Mode.DRY_RUN: ["run", "--dry-run", "--nproc-per-node", "1", "script.py"],
}

#: A program of a user's: it has its own folder, paths, handlers and torch, and looks after the choice whether
#: they are its own still. It answers in files, as its output may be flooded, and waits for no threads.
_PROGRAM = """
import json, os, signal, sys, threading, types, warnings
import accel_core, torch
torch.cuda = types.ModuleType("torch.cuda")
signal.signal(signal.SIGUSR1, lambda *_: None)
FOLDER = os.getcwd() + "/"
write = open

def state():
    size = next(line for line in open("/proc/self/status") if line.startswith("VmSize:"))
    return {
        "environment": {**os.environ},
        "torch.cuda": torch.cuda, "warnings": [*warnings.filters],
        "threads": threading.enumerate(), "stdin": os.lseek(0, 0, os.SEEK_CUR),
        "memory": int(size.split()[1]) >> 20,
    }

def tell(file, **what):
    now = state()
    what["changed"] = sorted(name for name in now if now[name] != before[name])
    with open(FOLDER + file, "w") as answer:
        json.dump(what, answer)

before = state()
try:
    accelerator = accel_core.get_accelerator()
except BaseException as error:
    tell("choice.json", raised=f"{type(error).__name__}: {error}")
    os._exit(1)
verdicts = accel_core.selection().to_dict()["verdicts"]
tell("choice.json", chosen=accelerator.name, verdicts=verdicts)
before = state()
said = ""
try:
    said = str([candidate for op in accelerator.operators().values() for candidate in op.candidates])
    accelerator.synchronize()
except BaseException as error:
    said += f"{type(error).__name__}"
tell("use.json", said=said)
os._exit(0)
"""

_COMMAND = """
import sys
from accel_core.cli import main
sys.argv = ["accel", *{arguments!r}]
main()
"""


@dataclass
class Seen:
    """What one run left."""

    returncode: int | None = None
    #: `None` where nothing says so.
    chosen: str | None = None
    #: By backend's name.
    verdicts: dict[str, dict[str, Any]] = field(default_factory=dict)
    raised: str = ""
    #: What of the process was another after the choice, and after the accelerator was used.
    changed: set[str] = field(default_factory=set)
    changed_by_use: set[str] | None = None
    said_by_use: str = ""
    #: The end of stdout and stderr.
    text: str = ""
    #: Whether stdout was one JSON document, where that was asked for.
    clean: bool = True
    #: Files in the user's cache about runs that have not ended well.
    left: list[str] = field(default_factory=list)
    document: dict[str, Any] = field(default_factory=dict)


def run(fault, place, modes, root, path):
    """Install the two below `root` and run these modes there, each as a process of a user's own.

    `path` is a `sys.path` with the standard library, accel_core and torch.
    """
    site = root / "site-packages"
    install(site, fault, place)
    seen = {}
    for mode in modes:
        seen[mode] = _once(fault, mode, root / mode.name.lower(), [str(site), *path])
    return seen


def _once(fault, mode, home, path):
    folder = home / "work"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.json"):
        old.unlink()
    (folder / "script.py").touch()
    mark = f"FAULT_CELL={uuid.uuid4().hex}"
    late = fault.kind in (Kind.HANGS, Kind.SLEEPS)
    environ = children.clean_environment(
        HOME=str(home), XDG_CACHE_HOME=str(home / "cache"), **dict([mark.split("=")]),
        **({"ACCEL_PROBE": "isolated"} if mode is Mode.ISOLATED else {}),
        # Where nothing is late nobody waits for it, and a loaded machine is no fault.
        ACCEL_PROBE_TIMEOUT=str(mode.deadline if late else 60),
    )  # fmt: skip
    code = _PROGRAM if mode.is_program else _COMMAND.format(arguments=mode.arguments)
    (folder / "stdin").write_text("the user's line\n" * 9)
    with (folder / "stdin").open("rb") as stdin:
        program = children.program(code, path, strict=False)
        process = children.start(
            program, children.untraced(environ), cwd=folder, stdin=stdin
        )
        stdout, stderr, hung = _ended(process, _patience(fault, mode))
        left = os.lseek(stdin.fileno(), 0, os.SEEK_CUR)
    seen = Seen(
        None if hung else process.returncode, text=f"{stdout[-4000:]}\n{stderr[-4000:]}"
    )
    if mode.is_program:
        _read_program(seen, folder)
    else:
        _read_command(seen, mode, stdout)
        if left:
            seen.changed.add("stdin")
    if processes.left_of(mark):
        seen.changed.add("children")
    children.kill(process)
    if len(stdout) > 1 << 20 and not mode.is_program:
        seen.changed.add("output")
    seen.left = [
        str(p.relative_to(home))
        for p in home.rglob("*")
        if p.is_file() and p.parent != folder
    ]
    return seen


def _findings(document):
    """What the doctor says of whether each candidate can be used; the worst of each comes last."""
    found = [
        f
        for topic in document["topics"]
        if topic["name"] == "candidates"
        for f in topic["findings"]
    ]
    known = [f for f in found if "distribution" in f["facts"]]
    return sorted(known, key=lambda finding: finding["level"] != "ok")


def _diagnosis(finding):
    """The same in the words of a verdict."""
    return {
        "status": finding["code"].partition(".")[2].replace("-", "_"),
        "distribution": finding["facts"]["distribution"].partition(" ")[0],
        "reason": finding["what"],
        "hint": finding["step"],
        "cause": str(finding["facts"]),
    }


def _patience(fault, mode):
    """Seconds after which the user ends what does not end."""
    if fault.kind is Kind.HANGS and mode is Mode.IN_PROCESS:
        return DEADLINE + 1
    return 200  # `accel ops` gives operators two minutes


def _ended(process, limit):
    """What it printed, and whether it was still running after `limit` seconds."""
    try:
        return (*process.communicate(timeout=limit), False)
    except subprocess.TimeoutExpired:
        process.kill()
        return (*process.communicate(), True)


def _read_program(seen, folder):
    with contextlib.suppress(FileNotFoundError):
        choice = json.loads((folder / "choice.json").read_text())
        seen.name, seen.raised = choice.get("chosen"), choice.get("raised", "")
        seen.verdicts = {v["name"]: v for v in choice.get("verdicts", ())}
        seen.changed = set(choice["changed"])
        use = json.loads((folder / "use.json").read_text())
        seen.changed_by_use, seen.said_by_use = set(use["changed"]), use["said"]


#: Where the documents of some commands have the backend.
_CHOSEN = {Mode.ENV: "DS_ACCELERATOR", Mode.INFO: "name", Mode.OPS: "backend"}


def _read_command(seen, mode, stdout):
    if mode is Mode.DRY_RUN:
        found = re.search(r"\b(faulty|good)\b", stdout)
        seen.name = found.group() if found else None
        return
    try:
        document = json.loads(stdout)
    except ValueError:
        seen.clean = False
        return
    seen.document = document
    seen.name = document.get(_CHOSEN.get(mode, "chosen"))
    if mode is Mode.DOCTOR:
        seen.verdicts = {f["about"]: _diagnosis(f) for f in _findings(document)}
    elif mode not in _CHOSEN:
        listed = document.get("backends") or document.get("verdicts") or ()
        seen.verdicts = {v["name"]: v for v in listed}
