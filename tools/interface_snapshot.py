"""Hold the public interface against interface.json, which records what the last release promised.

`--check` (`./dev docs`) fails on a difference that no file in changelog.d names, and on one that plugins of
the recorded API level cannot know of while `API_LEVEL` is still the same; CONTRIBUTING.md tells the rules.
`--write` records the interface as it is, as part of a release, and refuses the same.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from check_docs import PUBLIC
from generated import wants_check

ROOT = Path(__file__).resolve().parent.parent
RECORD = Path(__file__).with_name("interface.json")
LEVEL_STANDS = "API_LEVEL in src/accel_core/backend.py"
LEVELS_TOLD = "docs/writing-a-plugin.md#api-levels"
#: What a core of the recorded level refuses to see in a plugin.
NEEDS_A_LEVEL = ("fields", "hooks")

#: By section and name, as text.
Interface = dict[str, dict[str, str]]


class Change(NamedTuple):
    """One difference; `before` is empty for what is new, `now` for what is gone."""

    section: str
    name: str
    before: str
    now: str

    @property
    def word(self) -> str:
        """What a changelog fragment calls it: `set_device` for `Accelerator.set_device`."""
        words: list[str] = re.findall(r"[\w-]+", self.name)
        return words[-1]

    def __str__(self) -> str:
        what = f"{self.section}: {self.name}"
        if not self.before:
            return f"{what} is new, {self.now!r}"
        return f"{what} was {self.before!r}, and " + (f"is {self.now!r}" if self.now else "is gone")


# ---------------------------------------------------------------------------- what there is


def inner_names(root: Path) -> set[str]:
    """Names that begin with `_` and that docs/members.md tells plugins to override or call."""
    page = (root / "docs/members.md").read_text(encoding="utf-8")
    return set(re.findall(r"`(?:self\.)?(_[a-z_]+)[`(]", page))


def accelerators(root: Path) -> dict[str, str]:
    """The members of `Accelerator`, and those of the two other bases where they are called otherwise."""
    from accel_core import Accelerator, TorchAccelerator
    from accel_core.accelerators.cpu import CPUAccelerator
    from accel_core.conformance.described import members, written

    inner = {"__init__", *inner_names(root)}

    def of(kind: type) -> dict[str, str]:
        found = members(kind).items()
        return {name: written(member) for name, member in found if name[0] != "_" or name in inner}

    every = of(Accelerator)
    missing = sorted(inner - every.keys())
    if missing:
        raise SystemExit(f"docs/members.md: no accelerator has {', '.join(missing)}")
    others = {
        f"{kind.__name__}.{name}": text
        for kind in (TorchAccelerator, CPUAccelerator)
        for name, text in of(kind).items()
        if every.get(name) != text
    }
    return {**{f"Accelerator.{name}": text for name, text in every.items()}, **others}


def public_names() -> dict[str, str]:
    """The public names with their signatures; of a class, how it is called, and its members."""
    from accel_core import Accelerator, Backend, Status
    from accel_core.conformance.described import called, written

    found: dict[str, str] = {}
    for module in map(importlib.import_module, PUBLIC):
        for name in module.__all__:
            value, full = getattr(module, name), f"{module.__name__}.{name}"
            if not isinstance(value, type):
                found[full] = written(value) if inspect.isroutine(value) else type(value).__name__
            elif issubclass(value, (Accelerator, Backend, Status, Warning, Exception)):
                found[full] = "class"  # they have sections of their own
            else:
                own = own_members(value)
                is_record = "_fields" in dir(value)
                found[full] = f"class{called(value)}" if is_record or "__init__" in own else "class"
                found |= {f"{full}.{member}": text for member, text in own.items() if member[0] != "_"}
    return found


def own_members(kind: type) -> dict[str, str]:
    """What classes of accel_core define of it, but a record's fields: how it is called tells those.

    The rest is torch's, which differs from release to release.
    """
    from accel_core.conformance.described import members, written

    own = {name for base in kind.__mro__ if base.__module__.startswith("accel_core") for name in vars(base)}
    fields = {name for base in kind.__mro__ for name in getattr(base, "__annotations__", ())}
    return {name: written(member) for name, member in members(kind).items() if name in own - fields}


def errors() -> dict[str, str]:
    """Each error with the classes that an `except` may name for it."""
    from accel_core import errors

    kinds = [getattr(errors, name) for name in errors.__all__]
    return {
        kind.__name__: ", ".join(
            base.__name__
            for base in kind.__mro__[1:]
            if base not in (object, BaseException, Exception) and base.__name__[0] != "_"
        )
        or "Exception"
        for kind in kinds
    }


def json_keys(root: Path) -> dict[str, str]:
    """The keys of each document, from the pages that tests hold against what the commands print."""
    pages = {"docs/reference/json.md": ("key", ""), "docs/bench.md": ("field", "accel bench")}
    found = {}
    for page, (head, command) in pages.items():
        text = (root / page).read_text(encoding="utf-8")
        sections = re.split(r"(?m)^##+ (.*)$", text)[1:]
        for title, body in zip(sections[::2], sections[1::2], strict=True):
            for table in re.findall(rf"(?ms)^\| {head}\b[^|]*\|.*?(?=^(?!\|)|\Z)", body):
                cells = re.findall(r"(?m)^\| (`[^|]*`) \|", table)
                keys = [key for cell in cells for key in re.findall(r"`([^`]+)`", cell)]
                found[command or title] = "document"
                found.update({f"{command or title}: {key}": "key" for key in keys})
    return found


def entry_point_groups(root: Path) -> dict[str, str]:
    """The groups that a distribution may have entry points in: the declaration's, and those of accel-core."""
    from accel_core.backend import ENTRY_POINT_GROUP

    project = (root / "pyproject.toml").read_text(encoding="utf-8")
    groups = re.findall(r'^\[project\.entry-points\."(accel\.[\w.]+)"\]', project, re.MULTILINE)
    return dict.fromkeys((ENTRY_POINT_GROUP, *groups), "group")


def interface(root: Path = ROOT) -> Interface:
    """Everything that plugins and users may rely on, by section."""
    from accel_core import hookspecs
    from accel_core.conformance.described import describe
    from accel_core.detection.records import How, Status
    from accel_core.settings import VARIABLES

    described = describe()
    sections = {
        "members": accelerators(root),
        "hooks": described["hooks"],
        "first answer counts": {
            name: "firstresult"
            for name in described["hooks"]
            if getattr(hookspecs, name).accel_spec["firstresult"]
        },
        "fields": described["fields"],
        "names": public_names(),
        "errors": errors(),
        "verdicts": {status.value: "status" for status in Status},
        "how": {how.value: "how" for how in How},
        "json": json_keys(root),
        "variables": {variable.name: "variable" for variable in VARIABLES},
        "entry-point groups": entry_point_groups(root),
    }
    return {title: dict(sorted(names.items())) for title, names in sections.items()}


# ---------------------------------------------------------------------------- what changed


def changes(before: Interface, now: Interface) -> list[Change]:
    """Each difference, in the order of the sections; a new class or document stands for what is in it."""
    found: list[Change] = []
    for section in {**now, **before}:
        old, new = before.get(section, {}), now.get(section, {})
        differ = {
            name: Change(section, name, old.get(name, ""), new.get(name, ""))
            for name in sorted({*old, *new})
            if old.get(name) != new.get(name)
        }
        whole = {name for name, change in differ.items() if not (change.before and change.now)}
        found += [change for name, change in differ.items() if not whole & set(_around(name))]
    return found


def _around(name: str) -> tuple[str, str]:
    """The document, and the class, that a name may be in."""
    return name.partition(": ")[0] if ": " in name else "", name.rpartition(".")[0]


def told(root: Path) -> dict[str, set[str]]:
    """The words in code spans of the changelog's fragments, by the fragment's type."""
    words: dict[str, set[str]] = {}
    for file in sorted((root / "changelog.d").glob("*.md")):
        spans = re.findall(r"`([^`]+)`", file.read_text(encoding="utf-8"))
        kind = file.name.split(".")[1]
        words.setdefault(kind, set()).update(word for span in spans for word in re.findall(r"[\w-]+", span))
    return words


def why_a_level(change: Change) -> str:
    """Why plugins, or cores, of the recorded level do not get on with the change; empty where they do."""
    from accel_core.conformance.described import narrower, parsed

    if not change.now:
        return ""
    if not change.before:
        return "an older accel-core refuses a plugin with it" if change.section in NEEDS_A_LEVEL else ""
    if change.section == "hooks" and change.before.partition(")")[0] != change.now.partition(")")[0]:
        return "an older accel-core refuses a plugin whose hook asks for what is new"
    if change.section == "members":
        old, new = parsed(change.before), parsed(change.now)
        if (old is None) != (new is None):
            return "a method became an attribute, or the other way round"
        if old is not None and new is not None:
            return "; ".join(f"of an override as it was: {fault}" for fault in narrower(new, old))
    return ""


def faults(
    found: list[Change], raised: bool, words: Mapping[str, set[str]], level: int, version: str
) -> Iterator[str]:
    """What stands against each change, and what to do."""
    everything = set().union(*words.values())
    for change in found:
        if not change.now and change.word not in words.get("removal", ()):
            yield (
                f"{change}. A plugin, or a user, may rely on it: keep it; or say what serves instead, with "
                f"`{change.word}` in it, in changelog.d/ISSUE.removal.md"
            )
        elif change.word not in everything:
            yield f"{change}. Say so in changelog.d/ISSUE.TYPE.md, with `{change.word}` in it"
        if not raised and (why := why_a_level(change)):
            yield (
                f"{change}. {version} has API level {level} too, and {why}: raise {LEVEL_STANDS}, and tell "
                f"of the new level in {LEVELS_TOLD}"
            )


def main(arguments: list[str] | None = None, root: Path = ROOT, record: Path = RECORD) -> int:
    check = wants_check(__doc__, arguments)
    import accel_core

    now = interface(root)
    known: dict[str, Any] = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    level, version = known.get("api_level", 0), known.get("version", "none")
    found = changes(known.get("interface", {}), now) if known else []
    stands = list(faults(found, level < accel_core.API_LEVEL, told(root), level, version))
    if stands:
        print("\n".join(stands))
        return 1
    if check and not known:
        print(f"{record.name}: missing, run python tools/interface_snapshot.py --write")
        return 1
    if not check:
        document = {"version": accel_core.__version__, "api_level": accel_core.API_LEVEL, "interface": now}
        record.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8", newline="\n")
        print(f"{record.name}: written")
    names = sum(map(len, now.values()))
    print(
        f"{names} names of the interface; {len(found)} differ from {version}, and the changelog tells of each"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
