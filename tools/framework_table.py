"""Write the table of docs/howto/frameworks.md from accel_train's catalogue of frameworks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from generated import settled, wants_check

from accel_train.integrations.catalogue import FRAMEWORKS, Framework

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/howto/frameworks.md"
START = "<!--- tools/framework_table.py writes this table. -->\n"
END = "<!--- end of the table -->\n"
HEADER = "| framework | how it gets the device | limits |\n|---|---|---|\n"


def row(framework: Framework) -> str:
    """Return the table's row of a framework."""
    limitation = framework.limitation.replace("|", r"\|")
    return f"| {title(framework)} | {connection(framework)} | {limitation} |\n"


def title(framework: Framework) -> str:
    """Return the framework's name, with a link if another page describes it."""
    page = ROOT / framework.url
    if page == PAGE:
        return framework.name
    link = os.path.relpath(page, PAGE.parent).replace(os.sep, "/")
    return f"[{framework.name}]({link})"


def connection(framework: Framework) -> str:
    """Return how a program gets the framework onto the device."""
    if framework.group:
        return f"automatically, by an entry point in `{framework.group}`"
    if framework.integration and framework.usage:
        return f"automatically under `accel run`; otherwise {code(framework.usage)}"
    if framework.integration:
        return f"automatically under `accel run`; otherwise `{framework.adapter}`"
    if framework.usage:
        return f"the program passes the device: {code(framework.usage)}"
    return f"the program calls `{framework.adapter}`"


def code(usage: str) -> str:
    """Return a usage as code: `activate()` before `initialize()`."""
    return " before ".join(f"`{part}`" for part in usage.split(" before "))


def page_with_table(text: str) -> str:
    """Return the page with the table as the catalogue has it.

    Raises `ValueError` if the page lacks one of the two comments around the table.
    """
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(f"{PAGE.name} needs the comments {START!r} and {END!r}")
    rows = "".join(row(framework) for framework in FRAMEWORKS)
    return f"{before}{START}{HEADER}{rows}{END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table, or compare it with the catalogue."""
    check = wants_check(__doc__, arguments)
    wanted = {PAGE: page_with_table(PAGE.read_text("utf-8"))}
    counted = f"{len(FRAMEWORKS)} frameworks in {PAGE.name}"
    return settled(wanted, (), ROOT, counted, check=check)


if __name__ == "__main__":
    raise SystemExit(main())
