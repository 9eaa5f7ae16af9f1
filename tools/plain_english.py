"""Count sentences that are hard to read, in docstrings and pages; an area's bound may only shrink.

`plain_english.py` compares with plain_english.json, `--write` lowers the bounds to the present counts,
`--list` names every place. CONTRIBUTING.md has the rules.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BOUNDS = Path("tools/plain_english.json")
OPENER = re.compile(r"(What|Who|Where|Of|That)\b")
#: Participles in the place of a noun, and words that a reader has to translate.
WORDS = re.compile(
    r"\b(told|said|(?:the|what is|what was|is no) found|mend(?:s|ed|ing)?|kin|whoever|wherever|thereby)\b",
    re.IGNORECASE,
)
#: Pages that tools write: what they say is counted in its source.
GENERATED = re.compile(r"docs/(backends/\w+|evidence/members-by-backend)\.md")
CODE = re.compile(
    r"^(```+).*?^\1|<!--.*?-->|\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}|`[^`\n]*`",
    re.MULTILINE | re.DOTALL,
)
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def areas(root: Path) -> Iterator[tuple[str, Path]]:
    """Give the name and the folder of each area with docstrings."""
    yield "src/accel_core", root / "src/accel_core"
    for place in ("packages", "plugins"):
        for folder in sorted((root / place).glob("*/src")):
            yield f"{place}/{folder.parent.name}", folder


def pages(root: Path) -> Iterator[Path]:
    """Give the pages that people write."""
    for path in (
        *root.glob("*.md"),
        *sorted((root / "docs").rglob("*.md")),
        *sorted(root.glob("p*/*/README.md")),
    ):
        if (
            not GENERATED.fullmatch(path.relative_to(root).as_posix())
            and path.name != "CHANGELOG.md"
        ):
            yield path


def openers(path: Path) -> Iterator[tuple[int, str]]:
    """Give the docstrings that begin with a word which makes readers wait for the verb."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        text = ast.get_docstring(node) if isinstance(node, DOCUMENTED) else None
        if text and OPENER.match(text):
            yield getattr(node, "lineno", 1), text.partition("\n")[0]


def words(path: Path) -> Iterator[tuple[int, str]]:
    """Give the banned words of a page, outside of its code."""
    text = CODE.sub(
        lambda code: re.sub(r"[^\n]", " ", code[0]), path.read_text("utf-8")
    )
    for match in WORDS.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match[0]


def places(root: Path) -> dict[str, list[str]]:
    """Give every place, by area."""
    counted = {
        name: [
            f"{file.relative_to(root).as_posix()}:{line}: {text}"
            for file in sorted(folder.rglob("*.py"))
            for line, text in openers(file)
        ]
        for name, folder in areas(root)
    }
    written = [(page, *place) for page in pages(root) for place in words(page)]
    return {
        **counted,
        "pages": [
            f"{page.relative_to(root).as_posix()}:{line}: {word}"
            for page, line, word in written
        ],
    }


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Compare with the bounds; exit status 1 if an area is above its own."""
    bounds: dict[str, int] = json.loads((root / BOUNDS).read_text("utf-8"))
    now = places(root)
    if "--list" in arguments:
        print("\n".join(place for area in now.values() for place in area))
        return 0
    if "--write" in arguments:
        lower = {
            area: min(len(found), bounds.get(area, 0)) for area, found in now.items()
        }
        (root / BOUNDS).write_text(json.dumps(lower, indent=2) + "\n", "utf-8")
        bounds = lower
    above = [area for area, found in now.items() if len(found) > bounds.get(area, 0)]
    for area in above:
        print(*now[area], sep="\n")
        print(
            f"{area}: {len(now[area])} of these, at most {bounds.get(area, 0)} are allowed. ",
            end="",
        )
        print(
            "Begin a docstring with a verb or a noun; use a plain word (CONTRIBUTING.md, Plain English)."
        )
    return bool(above)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
