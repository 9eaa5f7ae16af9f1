"""Everything that a person or CI runs. `./dev` lists the sessions, `./dev NAME` sets one up and runs it.

A session that is one run of pytest, or of a tool, is a row of sessions.toml, or of lab/sessions.toml if it
records a trial; the others are functions here. A session's tag is its group in the list.
The environments are in `.nox/`, kept from run to run (tools/environments.py).
Anything odd after a branch switch: delete `.nox`.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import nox
import nox.project

ROOT = Path(__file__).resolve().parent
sys.path.insert(
    0, str(ROOT / "tools")
)  # a plain `nox` does not have the noxfile's folder in its path
from affected import UNTIL, near_tests  # noqa: E402
from environments import (  # noqa: E402
    BACKEND,
    CLEAN,
    MEASURED,
    PROJECTS,
    WINDOWS,
    changed,
    compiled,
    differing,
    for_deepspeed,
    group,
    in_own_folder,
    interpreters,
    measured,
    prepare,
    pytest,
    require,
    torch_home,
    watched,
    without,
)

nox.needs_version = ">=2026.10.20"  # has --parallel
nox.options.reuse_venv = "yes"
nox.options.default_venv_backend = BACKEND
nox.options.download_python = "never"
nox.options.sessions = ["test"]

# Byte code is kept on disk, as users have it: the tests start Python thousands of times.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

TRAIN = "packages/accel_train/src/accel_train"
INTEGRATIONS = f"{TRAIN}/deepspeed/*,{TRAIN}/lightning/*,{TRAIN}/accelerate.py,{TRAIN}/transformers.py"
STAGING = f"{TRAIN}/staged"
KIT = "packages/accel_testing/src/accel_testing/conformance"
CHECKS = f"{KIT}/[cfir]*/*"  # compute, frameworks, interface, ranks: on devices
NAMED = "tests/truth/test_outside.py"  # what we name of others' packages, read where those are installed
ATHERIS = (
    sys.platform == "linux"
    and platform.machine() == "x86_64"
    and sys.version_info >= (3, 11)
)
# One more than cores, as many tests wait for processes that they have started.
WORKERS = str(min(4, 1 + (os.cpu_count() or 1)))
# Devices and real vendors have sessions: a process each, minutes. Fuzzing and load take their time by night.
# The faults' children, whose branches nobody measures, run without torch alone.
OF_OTHERS = [
    "packages/accel_simulated/tests/device",
    "packages/accel_train/tests/deepspeed",
    "packages/accel_train/tests/multinode",
    "packages/accel_train/tests/recipes",
    "packages/accel_train/tests/trainers",
    "plugins/accel_npu/tests/real",
    "plugins/accel_tpu/tests/real",
    *(f"tests/{name}" for name in ("faults", "foreign", "fuzz", "site", "stress")),
]
# With coverage, which is measured by night, the tests for the night run too.
BY_DAY = () if MEASURED else ("-m", "not nightly")
ORDINARY = " and ".join(("not wheel and not gpu and not faults", *BY_DAY[1:]))
SEVERAL = ("-n", WORKERS, "--dist", "worksteal")


# ---------------------------------------------------------------------------- the table

WITH_TORCH = ("test", "example", "docs", "new")


class Row(NamedTuple):
    """A session of sessions.toml, which says what the fields are."""

    about: str
    tests: Sequence[str] = ()
    marks: str = ORDINARY
    several: bool = True
    always: Sequence[str] = ()
    tool: Sequence[str] = ()
    groups: Sequence[str] = WITH_TORCH
    extra: Sequence[str] = ()
    plugins: bool = True
    needs: Sequence[str] = ("torch", "sklearn")
    apart: Mapping[str, Sequence[str]] = {}
    variables: Mapping[str, str] = {}

    def run(self, session: nox.Session) -> None:
        """Fill the environment, and start pytest or the tool."""
        prepare(
            session,
            *self.groups,
            torch=True,
            extra=tuple(self.extra),
            plugins=self.plugins,
        )
        require(session, *self.needs)
        env = {
            **CLEAN,
            **{name: value or None for name, value in self.variables.items()},
        }
        for variable, (name, *options) in self.apart.items():
            env[variable] = str(in_own_folder(session, name, *options, *group(name)))
        if self.tool:
            session.run("python", *self.tool, *session.posargs, env=env)
        else:
            pytest(
                session, *self.always, *(session.posargs or self.arguments()), env=env
            )

    def arguments(self) -> Sequence[str]:
        """Give pytest's arguments; the folders that have sessions of their own are left out."""
        marks = ["-m", self.marks] if self.marks else []
        return [
            *(SEVERAL if self.several else ()),
            *marks,
            *without(self.tests, OF_OTHERS),
            *self.tests,
        ]


ROWS: dict[str, Row] = {}


def add_rows(path: Path) -> None:
    """Make a session of each row of a table; its tag is the row's group."""
    for tag, rows in nox.project.load_toml(path).items():
        for name, row in rows.items():
            ROWS[name] = Row(**row)
            add_session(name, ROWS[name], tag)


def add_session(name: str, row: Row, tag: str) -> None:
    """Make a session of a row."""

    def of_row(session: nox.Session) -> None:
        row.run(session)

    of_row.__doc__ = row.about  # which `nox --list` prints
    nox.session(of_row, name=name, tags=[tag])


add_rows(ROOT / "sessions.toml")
add_rows(ROOT / "lab" / "sessions.toml")
# The sessions of the distributions, which `all-tests` runs at once.
PARTS = ("core", "pkg-train", "pkg-tools", "pkg-testing", "plugins")
EVERYTHING = Row("", [folder for part in PARTS for folder in ROWS[part].tests])


# ---------------------------------------------------------------------------- for users

AFTER_THE_DEMO = """
What next?  {activate} puts `accel` and this Python on your path. Then

  accel why                  why this one was chosen, and why not each other
  accel info                 what it is and can do
  DS_ACCELERATOR=cpu python examples/train_digits.py       the same on a backend that you name

README.md, "Use", has the four lines for a program of your own. `./dev test` runs the tests.
"""
# Sessions of CI with environments of their own, most of them with frameworks.
APART = (
    "site simulated npu-real tpu-real ipex-real deepspeed deepspeed-oldest trainers "
    "integrations multinode"
)


@nox.session(tags=["start"])
def demo(session: nox.Session) -> None:
    """List the backends, and train a small network on the one that is chosen."""
    prepare(session, "example", torch=True)
    print(
        "\n1/2  Which backends are there, and which one is chosen?\n     $ accel list\n",
        flush=True,
    )
    session.run("accel", "list", log=False)
    train = "python examples/train_digits.py"
    print(
        f"\n2/2  Train on it: 1,797 real images of digits\n     $ {train}\n", flush=True
    )
    said = {
        "PYTHONWARNINGS": "ignore:No usable accelerator:UserWarning"
    }  # by the list, just now
    session.run(
        "python", "examples/train_digits.py", *session.posargs, env=said, log=False
    )
    script = os.path.relpath(Path(session.bin) / "activate")
    print(AFTER_THE_DEMO.format(activate=f"`{script}`" if WINDOWS else f"`. {script}`"))


@nox.session(venv_backend="none", tags=["start"])
def check(session: nox.Session) -> None:
    """Lint, types, and the tests that your diff against main touches: about a minute, once installed.

    While you work; `./dev test` before you hand in.
    """
    for name in ("lint", "types"):
        session.notify(name, posargs=())
    session.notify("affected")


@nox.session(venv_backend="none", tags=["start"])
def test(session: nox.Session) -> None:
    """Lint, types, the core's tests, and those of what has changed against main.

    `--all`: the documents, the wheels and the tests of all distributions. Sessions without torch, or with
    frameworks, devices or a browser are left out, as each has an environment of its own.
    Other arguments go to pytest, and nothing else runs: ./dev test PATH -k WORD
    """
    if session.posargs == ["--all"]:
        print(
            f"Left out: {APART.replace(' ', ', ')}. CI runs those too; `./dev NAME` runs one."
        )
        session.notify("all-tests", posargs=())
        # Two at a time, as each uses one core; the output of each comes at its end.
        two = (sys.executable, "-m", "nox", "--parallel", "2", "--sessions")
        session.run(*two, "wheels", "docs", "lint", "types", external=True)
    elif session.posargs:
        session.notify("all-tests")
    else:
        parts = [
            part for part in PARTS if part == "core" or changed(ROOT, folders(part))
        ]
        for name in ("lint", "types", *parts):
            session.notify(name)


def folders(part: str) -> list[str]:
    """Give the folders in which a change is a change of this part."""
    return [folder.removesuffix("/tests") for folder in ROWS[part].tests]


# ---------------------------------------------------------------------------- tests


@nox.session(tags=["tests"])
def affected(session: nox.Session) -> None:
    """Run the tests that your diff against main touches, the nearest first, for 40 seconds at most.

    tools/affected.py says which those are. A test for which no time is left is skipped, and counted as such.
    """
    prepare(session, *WITH_TORCH, torch=True)
    require(session, "torch", "sklearn")
    files = differing(ROOT)
    if files is None:
        session.error(
            "git knows no branch main to compare with: git fetch origin main:main"
        )
    found = near_tests(ROOT, files, OF_OTHERS)
    if not found:
        session.log(
            "no test is near what differs from main: ./dev core runs all of accel-core's"
        )
        return
    session.log(
        f"nearest first: {', '.join(found[:4])}{f' and {len(found) - 4} more' if found[4:] else ''}"
    )
    # One test at a time to each worker: so they run in that order.
    several = (
        "-n",
        WORKERS,
        "--dist",
        "load",
        "--maxschedchunk",
        "1",
        "-q",
        "-p",
        "affected",
        "-m",
        ORDINARY,
    )
    env = {**CLEAN, "PYTHONPATH": str(ROOT / "tools"), UNTIL: str(time.time() + 40)}
    pytest(session, *several, *session.posargs, *found, env=env)


@nox.session(name="all-tests", tags=["tests"])
def all_tests(session: nox.Session) -> None:
    """Run the tests of all distributions at once (`DEV_COVERAGE=1`: the night's too, with coverage)."""
    prepare(session, *WITH_TORCH, torch=True)
    require(session, "torch", "sklearn")
    if session.posargs or WINDOWS:  # coverage cannot follow a fork on Windows
        pytest(session, *(session.posargs or EVERYTHING.arguments()), env=CLEAN)
        return
    # The integrations are measured where their frameworks are: sessions deepspeed and trainers; the staged
    # process group where devices are: session simulated.
    measured(
        session,
        EVERYTHING.arguments(),
        CLEAN,
        f"--omit={INTEGRATIONS},{STAGING}/*,{CHECKS}",
    )


# What differs without torch, or on the oldest Python; the rest is the same code as in session `all-tests`.
WITHOUT_TORCH = Row(
    "",
    [
        *(
            "tests/faults",
            "tests/test_import_hygiene.py",
            "tests/test_settings.py",
            "tests/test_budgets.py",
        ),
        *(
            "tests/cli/test_list.py",
            "packages/accel_testing/tests/commands/test_new.py",
        ),
    ],
)


@nox.session(tags=["tests"])
@nox.parametrize(
    "python", [nox.param(path, id=version) for version, path in interpreters().items()]
)
def torchfree(session: nox.Session) -> None:
    """Run without torch what differs then, on the oldest and on the newest Python; all of it but on Linux."""
    prepare(session, "test")
    row = (
        WITHOUT_TORCH
        if sys.platform == "linux"
        else Row("", [*EVERYTHING.tests, "tests/faults"])
    )
    pytest(session, *(session.posargs or row.arguments()), env=CLEAN)


@nox.session(tags=["night"])
def fuzz(session: nox.Session) -> None:
    """Feed what people, plugins and machines may write to what reads it: 15 minutes, or `--seconds N`."""
    prepare(session, *WITH_TORCH, torch=True)
    session.run("python", "tools/fuzz.py", WORKERS, *session.posargs, env=CLEAN)
    if ATHERIS and not session.posargs:
        path = str(in_own_folder(session, "atheris", "atheris==3.0.0"))
        session.run("python", "tools/fuzz_bytes.py", env={**CLEAN, "PYTHONPATH": path})


@nox.session(tags=["night"])
def faults(session: nox.Session) -> None:
    """Run the fault matrix: thousands of cells in half an hour; records them for their page."""
    prepare(session, *WITH_TORCH, torch=True)
    require(session, "torch")
    seen = session.create_tmp()
    shutil.rmtree(seen)
    try:
        env = {**CLEAN, "ACCEL_FAULTS_RECORD": seen}
        pytest(
            session, *SEVERAL, "-m", "faults", "tests/faults", *session.posargs, env=env
        )
    finally:  # what is not as promised goes onto the page too
        session.run("python", "tools/fault_record.py", seen)


@nox.session(tags=["devices"])
def simulated(session: nox.Session) -> None:
    """Run every plugin on its simulated device (needs a C++ compiler; built once and kept).

    With `-m nightly` and its folder: what the simulator itself promises, and the rest of the trainings.
    """
    prepare(session, *WITH_TORCH, torch=True)
    require(session, "torch", "sklearn")
    if session.posargs:
        pytest(session, *session.posargs, env=CLEAN)
        return
    compiled(session, "acme", "cuda", "hpu", "mps", "xpu")  # one of each kind
    tests = "packages/accel_simulated/tests/device"
    staged = f"{tests}/test_staged.py"
    pytest(session, *SEVERAL, *BY_DAY, tests, f"--ignore={staged}", env=CLEAN)
    # Less than elsewhere: what its threads and the ends of processes pass is not seen.
    measured(
        session,
        (*SEVERAL, *BY_DAY, staged),
        CLEAN,
        f"--include={STAGING}/*",
        "--fail-under=85",
    )


#: The how-to guide from DeepSpeed's interface to accel-core's.
FROM_DEEPSPEED = "howto/from-deepspeed"


@nox.session(tags=["frameworks"])
def deepspeed(session: nox.Session) -> None:
    """Train with DeepSpeed on our accelerators: a simulated device nobody has heard of, and others by night.

    With `-m nightly` and its folder: the CPU, a device with less than a GPU, and all of level 4.
    """
    prepare(
        session,
        "test",
        "example",
        "docs",
        "deepspeed",
        torch=True,
        extra=("deepspeed==0.19.8",),
    )
    require(session, "deepspeed", "torch", "sklearn")
    # DeepSpeed asks every extension of that name that it finds.
    home = in_own_folder(session, "of_intel", "intel-extension-for-deepspeed==0.9.4")
    env = {**for_deepspeed(session), "ACCEL_REAL_IDEX": str(home)}
    if session.posargs:
        pytest(session, *session.posargs, env=env)
        return
    own = "packages/accel_train/tests/deepspeed"
    # By day session `all-tests` runs those that need no DeepSpeed; they measure the same code.
    more = [
        f"packages/accel_train/tests/ops/test_{of}.py"
        for of in ("arguments", "deepspeed_builders")
    ]
    found = (*SEVERAL, *BY_DAY, own, NAMED, *(more if MEASURED else ()))
    measured(session, found, env, f"--include={TRAIN}/deepspeed/*")
    # Afterwards: the tests have compiled what one of them needs.
    pages = [f"docs/{page}.md" for page in ("howto/deepspeed", FROM_DEEPSPEED)]
    session.run("python", "tools/run_documents.py", "README.md", *pages, env=env)


@nox.session(name="deepspeed-oldest", tags=["frameworks"])
def deepspeed_oldest(session: nox.Session) -> None:
    """Activate and launch the oldest DeepSpeed that is supported."""
    prepare(
        session,
        "test",
        "example",
        "deepspeed",
        torch=True,
        extra=("deepspeed==0.16.0",),
    )
    require(session, "deepspeed", "torch")
    # What depends on its release: its modules, its launcher here and on other hosts.
    names = (
        "two_ranks_on_this_host",
        "other_hosts_get_the_choice_and_the_activation",
        "status_and_words",
    )
    launch = [
        f"packages/accel_train/tests/deepspeed/test_launch.py::test_{name}"
        for name in names
    ]
    activate = [
        f"packages/accel_train/tests/deepspeed/test_activate{name}.py"
        for name in ("", "_children", "_defaults")
    ]
    found = (*activate, *launch)
    pytest(session, *SEVERAL, *(session.posargs or found), env=for_deepspeed(session))


@nox.session(tags=["frameworks"])
def trainers(session: nox.Session) -> None:
    """Train with Lightning, Accelerate, Transformers and TRL on our accelerators."""
    prepare(session, "test", "example", "docs", "trainers", torch=True)
    require(session, "lightning", "pytorch_lightning", "accelerate", "torch", "sklearn")
    env = {
        **CLEAN,
        "ACCEL_OLD_LIGHTNING": str(
            in_own_folder(session, "old_lightning", "lightning==2.2.5")
        ),
    }
    if session.posargs:
        pytest(session, *session.posargs, env=env)
        return
    pages = ("README.md", "docs/howto/trainers.md")
    session.run("python", "tools/run_documents.py", *pages, env=CLEAN)
    ours = INTEGRATIONS.removeprefix(f"{TRAIN}/deepspeed/*,")
    found = (*SEVERAL, *BY_DAY, "packages/accel_train/tests/trainers", NAMED)
    measured(session, found, env, f"--include={ours}")


@nox.session(tags=["release"], allow_parallel=True)
def wheels(session: nox.Session) -> None:
    """Build every distribution into dist/ and test the wheels in clean environments."""
    prepare(session, "build", "release", "test", "lint", "types", project=False)
    watched(session, "python", "tools/release.py", "--build")
    # The clean environments see torch through a .pth file, as the sessions do.
    torch_paths = os.pathsep.join(torch_home(session).paths)
    env = {
        **CLEAN,
        "ACCEL_WHEELS": str(ROOT / "dist"),
        "ACCEL_TORCH_PATHS": torch_paths,
    }
    # The other tests' conftest.py imports the project, which is not installed here on purpose.
    pytest(
        session,
        "--confcutdir=tests/wheels",
        "tests/wheels",
        *(session.posargs or BY_DAY),
        env=env,
    )


@nox.session(tags=["release"])
def release(session: nox.Session) -> None:
    """Build everything into dist/ and check it for a release. Publishes nothing.

    `--dry-run`: with the changelog assembled in a copy; then install each one in an empty environment.
    `--tag`: tag the commit, if nothing blocks a release.
    """
    prepare(session, "build", "release", project=False)
    session.run("python", "tools/release.py", *session.posargs, env=CLEAN)


# ---------------------------------------------------------------------------- checks


@nox.session(tags=["checks"], allow_parallel=True)
def lint(session: nox.Session) -> None:
    """Check style (ruff), the import layers (import-linter) and the English of docstrings and pages."""
    prepare(session, "lint", project=False)
    paths = [str(path / "src") for path in PROJECTS]
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    # What is over the bound stands in complexipy-snapshot.json, which only shrinks.
    session.run("complexipy", "--quiet", "--max-complexity-allowed", "15", *paths)
    session.run(
        "lint-imports", "--no-cache", env={"PYTHONPATH": os.pathsep.join(paths)}
    )
    session.run("python", "tools/public_names.py", "--check")
    session.run("python", "tools/metadata.py", "--check")
    session.run("python", "tools/plain_english.py")


@nox.session(tags=["checks"])
def fix(session: nox.Session) -> None:
    """Format the code and apply ruff's safe fixes."""
    prepare(session, "lint", project=False)
    session.run("python", "tools/public_names.py")
    session.run("python", "tools/metadata.py")
    session.run("ruff", "check", "--fix", "--exit-zero", ".")
    session.run("ruff", "format", ".")


@nox.session(tags=["checks"], allow_parallel=True)
def types(session: nox.Session) -> None:
    """Check types with mypy, strict."""
    prepare(session, "types", torch=True)
    plugins = os.pathsep.join(str(path / "src") for path in PROJECTS)
    watched(session, "mypy", *session.posargs, env={"MYPYPATH": plugins})


@nox.session(tags=["release"])
def surface(session: nox.Session) -> None:
    """Compare the public names with those of the last release's tag (griffe)."""
    prepare(session, "surface", project=False)
    last = ("git", "describe", "--tags", "--match", "v[0-9]*", "--abbrev=0")
    tag = session.run(
        *last, external=True, silent=True, success_codes=[0, 128], log=False
    )
    if not tag or not tag.startswith("v"):
        session.log("no release has a tag yet: there is nothing to compare with")
        return
    session.run(
        "griffe", "check", "accel_core", "--search", "src", "--against", tag.strip()
    )


@nox.session(tags=["checks"], allow_parallel=True)
def docs(session: nox.Session) -> None:
    """Check the documents, run their code, build the site into site/; `--write` writes the generated pages.

    What needs a framework runs where it is: in the sessions deepspeed and trainers.
    """
    prepare(session, *WITH_TORCH, torch=True)
    write = session.posargs or ["--check"]
    if not WINDOWS:  # each backend in a fork
        watched(session, "python", "tools/member_table.py", *write, env=CLEAN)
    for name in ("backend_pages", "framework_table", "member_page", "recipes"):
        watched(session, "python", f"tools/{name}.py", *write, env=CLEAN)
    session.run("python", "tools/check_docs.py")
    sphinx = [
        "sphinx-build",
        "-W",
        "--keep-going",
        "-q",
        "-E",
        "-j",
        "2",
        "-d",
        ".nox/doctrees",
    ]
    watched(session, *sphinx, "docs", "site", env=CLEAN)
    if not WINDOWS:  # their commands are a POSIX shell's
        session.run("python", "tools/run_documents.py", env=CLEAN)
    session.run("towncrier", "build", "--draft", "--version", "next", silent=True)


@nox.session(tags=["checks"])
def site(session: nox.Session) -> None:
    """Open the site that `./dev docs` built in headless Chromium: errors, search, phone, light and dark."""
    if not (ROOT / "site" / "index.html").is_file():
        session.error("site/ is not built: run ./dev docs first")
    prepare(session, "test", "site", project=False)
    # The other tests' conftest.py imports the project, which is not installed here.
    pytest(
        session, "--confcutdir=tests/site", "tests/site", *session.posargs, env=CLEAN
    )
