"""What of a plugin another release of accel-core would refuse, call otherwise, or not call at all."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from accel_core._support import child
from accel_core._support.interpreter import command
from accel_core.conformance import described, used
from accel_core.detection.records import Candidate
from accel_core.errors import SettingError

__all__ = ["Comparison", "Difference", "against", "compare", "described_by", "to_dict"]

#: Seconds for a child that imports a core, and for one that imports the plugin's class and with it torch.
_DESCRIBING, _LOOKING = 60.0, 180.0
#: The other release's core before anything else, whatever start-up files have imported of this one.
_PROGRAM = (
    "import sys; here, *sys.path[:] = sys.argv[1:]; "
    "[sys.modules.pop(name) for name in list(sys.modules) if name.partition('.')[0] == 'accel_core']; "
    "exec(compile(open(here, encoding='utf-8').read(), here, 'exec'), {'__name__': '__main__'})"
)


class Difference(NamedTuple):
    """One thing of a plugin that fares otherwise under the other release."""

    #: `"refused"`: the plugin does not load. `"fails"`: it raises where it is used. `"called otherwise"`:
    #: with arguments that it does not take. `"not called"`: nothing there knows of it.
    effect: str
    #: What of the plugin: `"set_stream"`, `"Backend.hints"`, `"accel_checks"`.
    what: str
    #: What the other release has instead.
    message: str


class Comparison(NamedTuple):
    """A plugin against another release."""

    #: The other release's version and API level.
    version: str
    api_level: int
    differences: tuple[Difference, ...]
    #: Why the plugin's class could not be looked at; empty where it was.
    unread: str


def against(candidate: Candidate, given: str) -> Comparison:
    """Hold a plugin against another release of accel-core.

    `given` is a requirement, `"accel-core==0.1.0"`, which pip downloads from the index that it is configured
    with, or the path of a wheel or of a folder with the package in it. The other release is imported in a
    child process, and so is the plugin's class. Raises `SettingError` where there is no such release, or it
    cannot be read.
    """
    with TemporaryDirectory(prefix="accel-against-") as folder:
        there = described_by(_place(given, Path(folder)), given)
    report = child.run(used.look, {"name": candidate.name, "distribution": candidate.distribution}, _LOOKING)
    words = report.stderr.splitlines()[-1:] if report.answer is None else []
    found: dict[str, Any] = report.answer or {
        "unread": ": ".join([f"the process that looked at it {report.ending}", *words])
    }
    differences = tuple(compare(found, described.describe(), there))
    return Comparison(there["version"], there["api_level"], differences, str(found.get("unread", "")))


def to_dict(candidate: Candidate, comparison: Comparison) -> dict[str, Any]:
    """The comparison as JSON holds it."""
    return {
        "backend": candidate.name,
        "distribution": candidate.distribution,
        "version": candidate.provenance.version,
        "against": {"version": comparison.version, "api_level": comparison.api_level},
        "unread": comparison.unread,
        "differences": [difference._asdict() for difference in comparison.differences],
    }


# --- The other release ---------------------------------------------------------------------------------


def _place(given: str, folder: Path) -> Path:
    """The folder that holds the other release's `accel_core`, in `folder` where it has to be unpacked."""
    path = Path(given)
    if not (path.exists() or path.name != given or given.endswith(".whl")):
        path = _downloaded(given, folder)
    if path.is_dir():
        for place in (path, path / "src"):
            if (place / "accel_core" / "__init__.py").is_file():
                return place.absolute()
        raise SettingError(f"--against {given}: expected accel_core, or src/accel_core, in that folder")
    if not path.exists():
        raise SettingError(
            f"--against {given}: there is no such file; expected accel-core==VERSION, or the path of a wheel "
            "or of a folder with accel_core in it"
        )
    unpacked = folder / "unpacked"
    try:
        with zipfile.ZipFile(path) as wheel:
            if "accel_core/__init__.py" not in wheel.namelist():
                raise SettingError(
                    f"--against {given}: expected a wheel of accel-core, and it has none of it"
                )
            wheel.extractall(unpacked)
    except (OSError, zipfile.BadZipFile) as error:
        raise SettingError(f"--against {given}: expected a wheel of accel-core: {error}") from None
    return unpacked


def _downloaded(given: str, folder: Path) -> Path:
    """The wheel that pip finds for a requirement."""
    try:
        wanted = Requirement(given)
    except InvalidRequirement:
        wanted = None
    if wanted is None or canonicalize_name(wanted.name) != "accel-core" or wanted.url:
        raise SettingError(
            f"--against {given}: expected accel-core==VERSION, or the path of a wheel or of a folder with "
            "accel_core in it"
        )
    pip = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"),
        *("--no-input", "--disable-pip-version-check", "--retries", "1", "--timeout", "15"),
    ]
    done = subprocess.run(
        [*pip, "--dest", str(folder), str(wanted)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    found = sorted(folder.glob("*.whl"))
    if done.returncode == 0 and found:
        return found[0]
    lines = done.stderr.strip().splitlines()
    errors = [line.partition("ERROR: ")[2] for line in lines if line.startswith("ERROR: ")]
    why = (errors or lines[-1:] or [f"pip exited with status {done.returncode}"])[0]
    raise SettingError(
        f"--against {given}: pip did not get it: {why}. Where the index has no such release, or is out of "
        "reach, give the path of its wheel"
    )


def described_by(place: Path, given: str) -> dict[str, Any]:
    """What `describe` gives of the `accel_core` in that folder, from a child process.

    Raises `SettingError`, which names `given`, where it does not import or is another one.
    """
    paths = [entry for entry in sys.path if isinstance(entry, str)]
    line = command(_PROGRAM, str(Path(described.__file__)), str(place), *paths)
    try:
        done = subprocess.run(
            line, stdin=subprocess.DEVNULL, capture_output=True, timeout=_DESCRIBING, check=False
        )
    except subprocess.TimeoutExpired:
        why = f"its import did not end in {_DESCRIBING:.0f} s"
    else:
        with contextlib.suppress(LookupError, ValueError):
            document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
            if Path(document["file"]).is_relative_to(place):
                return document
        why = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["another was imported"])[-1]
    raise SettingError(f"--against {given}: what it promises cannot be read: {why}")


# --- The comparison ------------------------------------------------------------------------------------


def compare(plugin: dict[str, Any], here: dict[str, Any], there: dict[str, Any]) -> Iterator[Difference]:
    """What of the plugin (`used.look`) fares otherwise; `here` and `there` are of `described.describe`."""
    release = f"accel-core {there['version']}"
    if plugin.get("api_level", 1) > there["api_level"]:
        levels = f"{release} has API level {there['api_level']}"
        yield Difference("refused", f"api_level={plugin['api_level']}", levels)
    for name in plugin.get("fields", ()):
        if name not in there["fields"]:
            yield Difference("refused", f"Backend.{name}", f"{release} has no such field")
    yield from _hooks(plugin.get("hooks", {}), there, release)
    for name in plugin.get("names", ()):
        if name in here["names"] and name not in there["names"]:
            yield Difference("fails", f"accel_core.{name}", f"{release} has no such name")
    yield from _members(plugin.get("overrides", {}), here, there, release)
    for name in plugin.get("calls", ()):
        if name in here["members"] and name not in {**there["members"], **plugin["overrides"]}:
            yield Difference("fails", f"self.{name}", f"{release} has no such member")


def _hooks(hooks: dict[str, list[str]], there: dict[str, Any], release: str) -> Iterator[Difference]:
    for name, arguments in hooks.items():
        if name not in there["hooks"]:
            yield Difference("refused", name, f"{release} has no such hook")
            continue
        specified = described.parsed(there["hooks"][name])
        given = list(specified.parameters) if specified else []
        unknown = [argument for argument in arguments if argument not in given]
        if unknown:
            message = f"{release} gives it no {', '.join(unknown)}, but {', '.join(given) or 'nothing'}"
            yield Difference("refused", name, message)


def _members(
    overrides: dict[str, str], here: dict[str, Any], there: dict[str, Any], release: str
) -> Iterator[Difference]:
    for name, text in overrides.items():
        wanted = there["members"].get(name)
        if wanted is None:
            if name in here["members"]:  # else a member of the plugin's own
                yield Difference("not called", name, f"{release} has no such member")
            continue
        ours, theirs = described.parsed(wanted), described.parsed(text)
        if (ours is None) != (theirs is None):
            is_, has = ("an attribute", "a method") if theirs is None else ("a method", "an attribute")
            yield Difference("called otherwise", name, f"it is {is_}, and {has} in {release}")
        elif ours is not None and theirs is not None and name != "__init__":
            for fault in described.narrower(ours, theirs):
                yield Difference("called otherwise", name, f"{fault}; {release} has {name}{wanted}")
