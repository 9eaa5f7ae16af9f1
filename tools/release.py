"""Check that dist/ may be released, and with `--tag` tag the commit: `./dev release` built it.

The version is the core's, and every distribution has it; CHANGELOG.md tells of it and no fragment is left;
the tree is clean, so that the tag is what was built.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def version(root: Path = ROOT) -> str:
    """The core's version, which is the release's."""
    text = (root / "src/accel_core/_version.py").read_text(encoding="utf-8")
    found = re.search(r'__version__ = "([^"]+)"', text)
    if found is None:
        raise SystemExit('src/accel_core/_version.py: expected a line __version__ = "X.Y.Z"')
    return found[1]


def faults(root: Path = ROOT) -> Iterator[str]:
    """What stands against a release, each with the next step."""
    wanted = version(root)
    projects = 1 + len(list(root.glob("p*/*/pyproject.toml")))
    built = sorted(path.name for path in (root / "dist").iterdir())
    for name in built:
        if f"-{wanted}" not in name:
            yield f"dist/{name} is not of version {wanted}: set the version in its pyproject.toml"
    for kind in (".whl", ".tar.gz"):
        count = sum(name.endswith(kind) for name in built)
        if count != projects:
            yield f"dist/ has {count} files {kind} for {projects} distributions: ./dev release"
    left = sorted(path.name for path in (root / "changelog.d").glob("*.md"))
    if left:
        yield f"changelog.d has {len(left)} fragments ({left[0]}, …): towncrier build --version {wanted}"
    if not re.search(rf"^## .*{re.escape(wanted)}", (root / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE):
        yield f"CHANGELOG.md has no heading for {wanted}: towncrier build --version {wanted}"
    if git(root, "status", "--porcelain"):
        yield "the working tree has changes: commit them, and run ./dev release again"
    if git(root, "tag", "--list", f"v{wanted}"):
        yield f"the tag v{wanted} is there already: raise __version__ in src/accel_core/_version.py"


def git(root: Path, *arguments: str) -> str:
    """Output of a git command in the tree."""
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--tag"]):
        raise SystemExit(f"{' '.join(arguments)}: expected nothing, or --tag")
    found = list(faults())
    if found:
        print("not released:", *found, sep="\n  ")
        return 1
    tag = f"v{version()}"
    if arguments:
        git(ROOT, "tag", "--annotate", tag, "--message", f"Release {version()}")
        print(f"tagged {tag}. git push origin {tag} publishes it: .github/workflows/release.yml")
    else:
        print(f"dist/ may be released as {tag}: ./dev release --tag")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
