"""Every command, watched: what it imports of what is blocked, and what it writes outside the project."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from accel_testing import children
from accel_testing.children import SIMULATED
from accel_testing.plugins import arguments, declaring

from accel_core.cli.commands import SUMMARIES

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "security.md"

#: In every process, children of children too: what is opened to be written, made, renamed or removed.
WATCH = """
import os, sys
log = os.open(os.environ["WATCHED"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
MADE = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link", "os.truncate", "os.chmod"}

def watch(event, given):
    if event == "open" and isinstance(given[2], int) and given[2] & WRITES:
        paths = given[:1]
    elif event in MADE:
        paths = given[:2] if event in ("os.rename", "os.link", "os.symlink") else given[:1]
    else:
        return
    folder = given[-1] if event in ("os.remove", "os.rmdir", "os.mkdir") else -1
    base = os.readlink(f"/proc/self/fd/{folder}") if folder >= 0 and sys.platform == "linux" else os.getcwd()
    for path in paths:
        if not isinstance(path, int):
            where = os.path.join(base, os.fsdecode(path))
            os.write(log, f"{event} {where}\\n".encode())

sys.addaudithook(watch)
"""

#: Every command in both modes, what a program calls, and at the end the same without the policy.
COMMANDS = """
import os, sys
import accel_core
from accel_core.cli import main
from accel_core.ops import cache

def call(function, *given):
    try:
        return function(*given)
    except accel_core.AccelError:
        pass

for mode in ("inline", "isolated"):
    os.environ["ACCEL_PROBE"] = mode
    for words in {commands!r} if mode == "isolated" else ():  # they are, whatever the mode
        sys.argv = ["accel", *words]
        try:
            main()
        except SystemExit:
            pass
    accel_core.set_accelerator(None)
    accel_core.get_accelerator().operators()
    for name in ("one", "two", "other", "three", "two@acme-tools"):
        call(accel_core.accelerator, name)
    call(accel_core.set_accelerator, object())
    accel_core.set_accelerator(None)
    os.environ["ACCEL_STRICT"] = "always"
    os.environ["ACCEL_ALLOW"] = "cpu"
    call(accel_core.get_accelerator)
    del os.environ["ACCEL_STRICT"], os.environ["ACCEL_ALLOW"]

def make(folder):
    library = folder / "library.so"
    library.write_bytes(b"a library")
    return library
place = cache.entry("op", {{}})
place.build(make)
with place.held() as library:
    assert library is not None

os.rename(os.environ["SEEN"], os.environ["SEEN"] + ".policy")
os.environ["ACCEL_CONFIG"] = "none"
accel_core.discover()
accel_core.set_accelerator(None)
accel_core.get_accelerator().operators()
"""
#: First lines of a plugin, and of a vendor's package: they tell that they were imported.
TELLS = """
import os
with open(os.environ["SEEN"], "a") as _seen:
    _seen.write(__name__ + "\\n")
"""
POLICY = 'block = ["one", "@Acme.Tools", "three@accel-three"]\n'


def patterns(cache: Path, temporary: Path) -> list[re.Pattern[str]]:
    """The first column of the table of files that are written, as expressions for real paths."""
    section = PAGE.read_text("utf-8").partition("## Files that are written")[2].partition("\n## ")[0]
    rows = re.findall(r"(?m)^\| `([^`]+)` \|", section)
    assert len(rows) > 5
    found = []
    for row in rows:  # a row on what is in a folder holds for the folder too
        text = re.escape(row.replace("NAME-KEY", "NAME"))
        text = re.sub(r"/\\\*(\\\*)?$", lambda end: "(/.*)?" if end[1] else "(/[^/]*)?", text)
        text = text.replace(r"\*", "[^/]*")
        text = text.replace("NAME", r"[\w.]+-[0-9a-f]+")
        text = text.replace("<cache>", re.escape(str(cache))).replace(
            "<temporary>", re.escape(str(temporary))
        )
        found.append(re.compile(text))
    return found


def install_what_is_blocked(world):
    """Three plugins that a policy refuses, each by another kind of rule; what one of them brings besides."""
    for name in ("one", "three"):
        source = TELLS + declaring(arguments(name, 950, vendor_import=f"vendor_{name}"))
        world.plugin(name, source, value=f"blocked_{name}", distribution=f"accel-{name}")
        world.module(f"blocked_{name}", source)
        world.module(f"vendor_{name}", TELLS)
    groups = {
        "accel.backends": {"two": "blocked_two", "other": "blocked_other"},
        "accel.op_builders": {"tools": "blocked_ops"},
        "accel.adapters": {"framework": "blocked_adapter"},
        "torch.backends": {"tools": "blocked_autoload:autoload"},
    }
    world.distribution("Acme_Tools", "1.0", groups)
    world.module("blocked_two", TELLS + declaring(arguments("two", 940)))
    world.module("blocked_other", TELLS + declaring(arguments("other.name", 930)))
    builders = "@accel_core.hookimpl\ndef accel_op_builders(backend):\n    return {}\n"
    world.module("blocked_ops", f"{TELLS}import accel_core\n{builders}")
    world.module("blocked_adapter", f"{TELLS}def adapt(foreign, backend):\n    return None\n")
    world.module("blocked_autoload", f"{TELLS}def autoload():\n    pass\n")


@pytest.mark.skipif(sys.platform == "win32", reason="the paths of the table are POSIX's")
@pytest.mark.skipif(not PAGE.exists(), reason="the documents are not in this distribution")
def test_no_command_imports_what_is_blocked_or_writes_what_is_not_in_the_table(world, tmp_path):
    """No child of any command does either. One run for both, as it starts some twenty processes."""
    install_what_is_blocked(world)
    world.backend("mlu", 990)
    world.plugin("npu", declaring(arguments("npu", 980, vendor_import="torch_crash")))
    world.module("torch_crash", "import os; os._exit(3)")
    places = {name: tmp_path / name for name in ("watching", "caches", "temporary", "work")}
    for place in places.values():
        place.mkdir()
    (places["watching"] / "sitecustomize.py").write_text(WATCH)
    (places["work"] / "accel.toml").write_text(POLICY)
    page, log, seen = places["work"] / "page.html", tmp_path / "written", tmp_path / "seen"
    seen.touch()
    commands = [
        ["why"], ["why", "two"], ["list", "--no-probe"], ["list", "--export", str(page)], ["info"],
        ["info", "two"], ["ops"], ["env", "three"], ["doctor"], ["--help"], ["completion", "bash"],
        ["simulate", "--list"], ["verify", "two", "--level", "0"],
    ]  # fmt: skip
    # torchrun's options and a benchmark need a real torch.
    assert {words[0] for words in commands if words != ["--help"]} == {*SUMMARIES} - {
        "run",
        "bench",
        "new",  # writes a folder, and asks nobody
        "deepspeed",
    }
    environ = {
        "PYTHONPATH": str(places["watching"]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "WATCHED": str(log),
        "SEEN": str(seen),
        "XDG_CACHE_HOME": str(places["caches"]),
        "TMPDIR": str(places["temporary"]),
    }
    path = [*world.path, SIMULATED]
    code = COMMANDS.format(commands=commands)
    done = children.run(code, path, environ, strict=False, traced=False, cwd=places["work"], timeout=240)
    assert done.returncode == 0, done.stderr
    assert seen.with_suffix(".policy").read_text() == ""
    without = seen.read_text().split()
    assert {*without} >= {f"blocked_{name}" for name in ("one", "two", "other", "three", "ops")}

    assert {file.name for file in places["work"].iterdir()} == {"accel.toml", "page.html"}
    text = log.read_text("utf-8")
    # Of a name relative to an open folder the event does not tell the folder: notes on what is tried.
    notes = places["caches"] / "accel-core" / "trying"
    text = re.sub(
        rf"{re.escape(str(places['work']))}/(?=[0-9a-f]{{16}}$)", f"{notes}/", text, flags=re.MULTILINE
    )
    written = set(text.splitlines())
    allowed = patterns(places["caches"] / "accel-core", places["temporary"])
    allowed.append(re.compile(re.escape(str(page))))
    allowed.append(re.compile(re.escape(str(seen)) + r"(\.policy)?"))
    unknown = [
        line
        for line in sorted(written)
        if not any(each.fullmatch(line.partition(" ")[2]) for each in allowed)
    ]
    assert unknown == []
    rows = [each.pattern for each in allowed if any(each.fullmatch(w.partition(" ")[2]) for w in written)]
    assert len(rows) >= 6, (rows, written)  # else nothing was watched
