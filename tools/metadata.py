"""Copy what all distributions share into each: the version, the pins between them, the project's addresses.

A person writes the version in src/accel_core/__init__.py, and the repository's address in the root's
pyproject.toml (`Repository`). `./dev fix` copies both to the other files; `./dev lint` checks the copies.
"""

from __future__ import annotations

import re
from pathlib import Path

from generated import settled, wants_check

ROOT = Path(__file__).resolve().parent.parent
#: Ends in a name that RFC 2606 reserves: no address of the repository is known yet.
UNKNOWN = ".invalid"
_URLS = re.compile(r"^\[project\.urls\]\n(?:.+\n)+", re.MULTILINE)
_REPOSITORY = re.compile(r'^Repository = "(https://[^"]+)"$', re.MULTILINE)
#: The table [project], to the next table and the comment above it.
_PROJECT = re.compile(r"^\[project\]\n(?:.*\n)*?(?=(?:#.*\n)*\[)", re.MULTILINE)
_TOGETHER = re.compile(
    r'"(accel-(?:core|train|tools|testing|simulated)(?:\[\w+\])?)==[^"]*"'
)
_VERSION = re.compile(r'^((?:__version__|version) = )"[^"]*"$', re.MULTILINE)


def version(root: Path = ROOT) -> str:
    """Return the version of the core, which every distribution has."""
    text = (root / "src/accel_core/__init__.py").read_text(encoding="utf-8")
    found = re.search(r'__version__ = "([^"]+)"', text)
    if found is None:
        raise SystemExit(
            'src/accel_core/__init__.py: expected a line __version__ = "X.Y.Z"'
        )
    return found[1]


def projects(root: Path = ROOT) -> list[Path]:
    """Return the folder of every distribution, the core's first."""
    return [root, *sorted(path.parent for path in root.glob("p*/*/pyproject.toml"))]


def repository(root: Path = ROOT) -> str:
    """Return the address of the repository, as the root's pyproject.toml has it."""
    found = _REPOSITORY.search((root / "pyproject.toml").read_text(encoding="utf-8"))
    if found is None:
        raise SystemExit(
            'pyproject.toml, [project.urls]: expected a line Repository = "https://…"'
        )
    return found[1].rstrip("/")


def urls(root: Path = ROOT) -> str:
    """Return the table of addresses; GitHub lays a repository out so, where its workflows run."""
    base = repository(root)
    rows = {
        "Repository": base,
        "Documentation": f"{base}/blob/main/docs/index.md",
        "Changelog": f"{base}/blob/main/CHANGELOG.md",
        "Issues": f"{base}/issues",
    }
    return "".join(
        [
            "[project.urls]\n",
            *(f'{label} = "{address}"\n' for label, address in rows.items()),
        ]
    )


def wanted(root: Path = ROOT) -> dict[Path, str]:
    """Return every file that has a copy, with the text that it should have."""
    found = {}
    for project in projects(root):
        file = project / "pyproject.toml"
        text = _TOGETHER.sub(rf'"\g<1>=={version(root)}"', file.read_text("utf-8"))
        text = _VERSION.sub(rf'\g<1>"{version(root)}"', text)
        if _URLS.search(text):
            text = _URLS.sub(lambda _: urls(root), text)
        else:  # before the first table that follows [project]
            text = _PROJECT.sub(
                lambda table: f"{table[0]}{urls(root)}\n", text, count=1
            )
        found[file] = text
        for module in project.glob("src/*/__init__.py"):
            source = module.read_text("utf-8")
            if _VERSION.search(source):
                found[module] = _VERSION.sub(rf'\g<1>"{version(root)}"', source)
    return found


def main(arguments: list[str] | None = None) -> int:
    check = wants_check(__doc__, arguments)
    said = f"every distribution has version {version()} and the addresses"
    return settled(wanted(), [], ROOT, said, check=check, command="./dev fix")


if __name__ == "__main__":
    raise SystemExit(main())
