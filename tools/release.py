"""Build every distribution, check it for a release, and tag the commit. It publishes nothing.

    python tools/release.py            builds into dist/, and says what still blocks a release
    python tools/release.py --tag      the same, and tags the commit if nothing blocks it
    python tools/release.py --dry-run  the same with the changelog assembled in a copy; then installs each
                                       distribution from dist/ alone in an empty environment: accel list
    python tools/release.py --build    builds into dist/

It builds in a copy of the tree, where links in a README are absolute, as PyPI needs them.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from metadata import UNKNOWN, projects, repository, version

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
#: What the session `release` of noxfile.py installs.
NEEDED = ("build", "hatchling", "towncrier", "twine")
#: A link or a picture of Markdown, `](target)`.
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|!\[[^\]]*\]\([^)]*\))*)\]\(([^)\s]+)\)")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|#")


# ---------------------------------------------------------------------------- what blocks a release


def faults(root: Path = ROOT) -> Iterator[str]:
    """Yield what blocks a release, each with the next step."""
    wanted = version(root)
    built = sorted(path.name for path in (root / "dist").iterdir())
    for name in built:
        if f"-{wanted}" not in name:
            yield f"dist/{name} is not of version {wanted}, accel_core.__version__: ./dev fix copies it"
    count = len(projects(root))
    for kind in (".whl", ".tar.gz"):
        found = sum(name.endswith(kind) for name in built)
        if found != count:
            yield f"dist/ has {found} files {kind} for {count} distributions: ./dev release"
    if repository(root).endswith(UNKNOWN) or f"{UNKNOWN}/" in repository(root):
        yield f"{repository(root)} is no address: set Repository in pyproject.toml, then ./dev fix"
    left = fragments(root)
    if left:
        yield f"changelog.d has {len(left)} fragments ({left[0]}, …): towncrier build --version {wanted}"
    changes = (root / "CHANGELOG.md").read_text("utf-8")
    if not re.search(rf"^## .*{re.escape(wanted)}", changes, re.MULTILINE):
        yield f"CHANGELOG.md has no heading for {wanted}: towncrier build --version {wanted}"
    if re.search(rf"^## .*{re.escape(wanted)} \(unreleased\)", changes, re.MULTILINE):
        yield f"CHANGELOG.md calls {wanted} unreleased: write the date into that heading"
    if git(root, "status", "--porcelain"):
        yield "the working tree has changes: commit them, and run ./dev release again"
    if git(root, "tag", "--list", f"v{wanted}"):
        yield f"the tag v{wanted} exists: raise __version__ in src/accel_core/__init__.py, then ./dev fix"


def fragments(root: Path) -> list[str]:
    """Return the names of the changes that are not in CHANGELOG.md yet."""
    return sorted(path.name for path in (root / "changelog.d").glob("*.md"))


def git(root: Path, *arguments: str) -> str:
    """Return what a git command prints in the tree."""
    done = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


# ---------------------------------------------------------------------------- building in a copy


def copied(root: Path, home: Path) -> None:
    """Copy the files that git knows or would know, as they are in the working tree."""
    for name in git(root, "ls-files", "-z", "-co", "--exclude-standard").split("\0"):
        source, target = root / name, home / name
        if name and source.is_file():  # else deleted and not committed
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def absolute(text: str, folder: Path, root: Path, base: str, ref: str) -> str:
    """Return a README whose links to files of the tree lead to `base`, at `ref`."""

    def replaced(match: re.Match[str]) -> str:
        picture, label, target = match.groups()
        label = _LINK.sub(replaced, label)
        path, _, fragment = target.partition("#")
        if not _ELSEWHERE.match(target):
            file = (folder / path).resolve()
            kind = "raw" if picture else "tree" if file.is_dir() else "blob"
            target = (
                f"{base}/{kind}/{ref}/{file.relative_to(root.resolve()).as_posix()}"
            )
            target += f"#{fragment}" if fragment else ""
        return f"{picture}[{label}]({target})"

    return _LINK.sub(replaced, text)


def built(home: Path) -> None:
    """Build every distribution of the copy into an empty dist/: an sdist, and the wheel from it."""
    shutil.rmtree(DIST, ignore_errors=True)
    for project in projects(home):
        readme = project / "README.md"
        text = absolute(
            readme.read_text("utf-8"),
            project,
            home,
            repository(home),
            f"v{version(home)}",
        )
        readme.write_text(text, encoding="utf-8", newline="\n")
        run(
            sys.executable,
            "-m",
            "build",
            "--no-isolation",
            "--outdir",
            str(DIST),
            str(project),
        )


def run(*command: str, cwd: Path | None = None, **variables: str) -> str:
    """Run a command, and return what it prints; where it fails, end with all of it."""
    env = {**os.environ, **variables}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=cwd, env=env
    )
    if done.returncode:
        raise SystemExit(
            f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}"
        )
    return done.stdout.strip()


def step(began: float, text: str) -> None:
    """Print what was done, and how long after the start."""
    print(f"{time.monotonic() - began:5.0f} s  {text}", flush=True)


# ---------------------------------------------------------------------------- installing what was built


def names() -> list[tuple[str, str]]:
    """Return name and version of each wheel, as pip writes them."""
    wheels = sorted(DIST.glob("*.whl"))
    return [
        (wheel.name.split("-")[0].replace("_", "-"), wheel.name.split("-")[1])
        for wheel in wheels
    ]


def installed(name: str, number: str, folder: Path, others: Path) -> str:
    """Install one distribution in an empty environment, and return what `accel list` says there of it."""
    home = folder / name
    run(sys.executable, "-m", "venv", str(home))
    scripts = home / ("Scripts" if os.name == "nt" else "bin")
    pip = (
        str(scripts / "python"),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--quiet",
    )
    # Without an index: what has our names comes from dist/ alone.
    run(
        *pip,
        "install",
        "--no-index",
        "-f",
        str(DIST),
        "-f",
        str(others),
        f"{name}=={number}",
    )
    run(*pip, "check")
    clean = {
        key: "" for key in os.environ if key.startswith(("ACCEL_", "PYTHON", "DS_ACC"))
    }
    run(str(scripts / "accel"), "list", cwd=home, **clean)
    rows = json.loads(run(str(scripts / "accel"), "list", "--json", cwd=home, **clean))[
        "backends"
    ]
    own = [
        f"{row['name']}: {row['status']}" for row in rows if row["distribution"] == name
    ]
    shutil.rmtree(home)
    return ", ".join(own) or "brings no backend"


def rehearsed(began: float) -> None:
    """Install each distribution from dist/; what else they need is downloaded once, before."""
    with tempfile.TemporaryDirectory() as folder:
        others = Path(folder, "others")
        wheels = [str(path) for path in sorted(DIST.glob("*.whl"))]
        run(sys.executable, "-m", "venv", f"{folder}/downloads")
        python = f"{folder}/downloads/{'Scripts' if os.name == 'nt' else 'bin'}/python"
        pip = (python, "-m", "pip", "--disable-pip-version-check", "--quiet")
        run(*pip, "download", "--dest", str(others), *wheels)
        for wheel in wheels:
            (others / Path(wheel).name).unlink()
        step(
            began,
            f"downloaded the {len(list(others.iterdir()))} packages of others that these need",
        )
        for name, number in names():
            step(
                began,
                f"{name} {number}: pip install, accel list ({installed(name, number, Path(folder), others)})",
            )


# ---------------------------------------------------------------------------- the command


def main(arguments: list[str] | None = None) -> int:
    began = time.monotonic()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    mode = parser.add_mutually_exclusive_group()
    for option in ("--tag", "--dry-run", "--build"):
        mode.add_argument(option, action="store_true")
    wanted = parser.parse_args(arguments)
    if not all(
        map(importlib.util.find_spec, NEEDED)
    ):  # not in the session's environment: go there
        given = sys.argv[1:] if arguments is None else arguments
        return subprocess.call(
            [sys.executable, str(ROOT / "tools/bootstrap.py"), "release", *given]
        )
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "accel")
        copied(ROOT, home)
        if wanted.dry_run:
            if fragments(home):  # without any it would write an empty section
                run("towncrier", "build", "--yes", "--version", version(), cwd=home)
            lines = (home / "CHANGELOG.md").read_text("utf-8").splitlines()
            first = next(line for line in lines if line.startswith("## "))
            step(
                began,
                f"CHANGELOG.md, in a copy: “{first}”, {sum(line.startswith('- ') for line in lines)} changes",
            )
        built(home)
    files = sorted(DIST.iterdir())
    step(
        began,
        f"built {sum(path.suffix == '.whl' for path in files)} wheels, {len(files)} files in dist/",
    )
    if wanted.build:
        return 0
    run("twine", "check", "--strict", *map(str, files))
    step(began, "twine check --strict: passed")
    if wanted.dry_run:
        rehearsed(began)
    found = list(faults())
    if found:
        print("", "What blocks a release:", *found, sep="\n  ")
        return 0 if wanted.dry_run else 1
    tag = f"v{version()}"
    if wanted.tag:
        git(ROOT, "tag", "--annotate", tag, "--message", f"Release {version()}")
        print(
            f"tagged {tag}. git push origin {tag} publishes it: .github/workflows/release.yml"
        )
    else:
        print(f"dist/ may be released as {tag}: ./dev release --tag")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
