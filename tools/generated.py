"""What every tool that generates pages does with them: `--write` writes, `--check` only compares."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["settled", "wants_check"]


def wants_check(description: str | None, arguments: Sequence[str] | None) -> bool:
    """Read a tool's arguments; writing is the default."""
    parser = argparse.ArgumentParser(description=description)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "--check",
        action="store_true",
        help="write nothing; fail when a file is out of date",
    )
    mode.add_argument(
        "--write", action="store_true", help="write the files (the default)"
    )
    return bool(parser.parse_args(arguments).check)


def settled(
    wanted: Mapping[Path, str],
    faults: Sequence[str],
    root: Path,
    said: str,
    *,
    check: bool,
    command: str = "./dev docs --write",
) -> int:
    """Compare or write the files, print `said` or what is wrong; the exit status.

    `faults`: what is wrong with what people write, found before. `command` writes the files.
    """
    told = list(faults)
    for path, text in wanted.items():
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        name = path.relative_to(root).as_posix()
        if check:
            told.append(f"{name}: out of date, run {command}")
        else:
            path.write_text(text, encoding="utf-8", newline="\n")
            print(f"{name}: written")
    print("\n".join(told) or said)
    return 1 if told else 0
