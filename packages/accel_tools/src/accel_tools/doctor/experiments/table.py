"""The table of experiments: what is changed in a child, and the next step if that is the cause.

Every variable that is set is a row, whatever its name. What a row proves is the same
for all: with this one change the program does what it does not do without it.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
import shlex
import site
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath

from accel_core import Backend, Provenance, packages
from accel_core.hardware.visible_devices import inventory, masks
from accel_core.text import one_line
from accel_core.torch_import import AUTOLOAD, TORCH_GROUP
from accel_tools.doctor.experiments.search import Row
from accel_tools.doctor.experiments.trial import Change, Outcome, Program, StartFile
from accel_tools.doctor.start_files import start_files

#: The most characters of a variable's value that are shown.
_LONGEST = 60
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|(^|_)KEY(_|$)", re.IGNORECASE)
#: Never left out: what the shell sets for itself, and what makes simulated devices.
_NEVER = (
    "_",
    "SHLVL",
    "PWD",
    "OLDPWD",
    "ACCEL_SIMULATE",
    "ACCEL_SIMULATE_DECLARED",
    "ACCEL_SIMULATE_LIBRARY",
    "ACCEL_SIMULATE_RECORD",
)
#: Words in the names of variables that choose devices, whoever reads them.
_CHOOSES = re.compile(r"VISIBLE|DEVICE|SELECTOR|AFFINITY|MASK|RANK")
#: Files that run at Python's start and that belong to accel.
_OWN_START_FILES = ("accel_simulated.pth",)
#: torch imports no package of another distribution.
WITHOUT_AUTOLOAD = Change(assigned=((AUTOLOAD, "0"),))


def rows(program: Program) -> list[Row]:
    """Return the experiments that mean something here, in the order of trying."""
    makers = (
        _device_variable_rows,
        _script_folder_rows,
        _start_file_rows,
        _loader_rows,
        _user_site_rows,
        _limit_rows,
        _folder_rows,
        _other_variable_rows,
        _autoload_rows,
    )
    found: dict[str, Row] = {}
    for maker in makers:
        for row in maker(program):
            found.setdefault(row.name, row)
    return list(found.values())


@dataclass(frozen=True)
class PythonPath:
    """The folders of packages of this Python, and the files that run at its start."""

    folders: tuple[str, ...]
    user_folder: str
    start_files: tuple[StartFile, ...]


def python_path() -> PythonPath:
    """Return the folders of packages and the start-up files of this Python."""
    user = site.getusersitepackages() if site.ENABLE_USER_SITE else ""
    folders = [*([user] if user else []), *site.getsitepackages()]
    added = [line for folder in folders for line in _path_lines(Path(folder))]
    files = tuple(StartFile(file.path, file.lines) for file in start_files())
    return PythonPath((*folders, *added), user, files)


def _path_lines(folder: Path) -> Iterator[str]:
    """Yield the folders that `.pth` files add to the path."""
    for file in sorted(folder.glob("*.pth")):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.strip() and not line.startswith(("#", "import ", "import\t")):
                yield str(folder / line.strip())


# --- Python's path, and what runs at its start ----------------------------------------


def _start_file_rows(program: Program) -> Iterator[Row]:
    for file in program.start_files:
        if PurePath(file.path).name in _OWN_START_FILES:
            continue
        owner = next((f.distribution for f in start_files() if f.path == file.path), "")
        step = f"remove {file.path}, which runs when Python starts"
        if owner:
            step = f"pip uninstall {owner.partition(' ')[0]}, or upgrade it"
        yield Row(
            Change(without_start_files=frozenset({file.path})),
            f"the start-up file {file.path}",
            _always(step),
            functools.partial(_goes_through, file.path),
            may_be_needed=True,
        )


def _script_folder_rows(_program: Program) -> Iterator[Row]:
    folder = _current_folder()
    if folder is None or not _has_modules(folder):
        return
    yield Row(
        Change(without_folder=True),
        f"the modules in {folder}",
        functools.partial(_rename, str(folder)),
        lambda outcome: bool(_from(str(folder), outcome)),
    )


def _current_folder() -> Path | None:
    try:
        return Path.cwd()
    except OSError:
        return None


def _has_modules(folder: Path) -> bool:
    try:
        entries = list(folder.iterdir())
    except OSError:
        return False
    return any(
        entry.suffix in (".py", ".pyc", ".so") or (entry / "__init__.py").exists()
        for entry in entries
    )


def _rename(folder: str, outcome: Outcome) -> str:
    files = _from(folder, outcome)
    if not files:
        return f"start the program from another folder than {folder}"
    paths = " and ".join(sorted(files.values()))
    names = ", ".join(sorted(files))
    return f"rename {paths}: Python imports it where another module {names} is meant"


def _from(folder: str, outcome: Outcome) -> dict[str, str]:
    """Return the modules directly in `folder` that the program met, with their files."""
    deeper = [e for e in sys.path if e.startswith(folder + os.sep)]
    found: dict[str, str] = {}
    for file in (*outcome.loaded.values(), *outcome.places):
        is_deeper = any(file.startswith(entry + os.sep) for entry in deeper)
        if is_deeper or not file.startswith(folder + os.sep):
            continue
        top = Path(folder, PurePath(file).relative_to(folder).parts[0])
        found[top.name.partition(".")[0]] = str(top)
    return found


def _user_site_rows(program: Program) -> Iterator[Row]:
    user = program.user_site
    if not user or not Path(user).is_dir():
        return
    yield Row(
        Change(without_user_site=True),
        f"the packages in {user}",
        functools.partial(_step_without_user_site, user),
        lambda outcome: bool(_from(user, outcome)),
    )


def _step_without_user_site(user: str, outcome: Outcome) -> str:
    names = ", ".join(sorted(_from(user, outcome)))
    which = f" ({names} there stands in for the installed one)" if names else ""
    return f"export PYTHONNOUSERSITE=1, or remove what is to blame from {user}{which}"


def _announced() -> list[Provenance]:
    """Return the packages that torch's autoload imports, but for ours."""
    found = packages.entry_points(TORCH_GROUP)
    return [entry for entry in found if entry.distribution != "accel-train"]


def extensions() -> list[tuple[str, str]]:
    """Return module and distribution of each package that torch's autoload imports."""
    return [(entry.module, str(entry)) for entry in _announced()]


def _autoload_rows(program: Program) -> Iterator[Row]:
    announced = _announced()
    if not announced or program.environ.get(AUTOLOAD, "1") != "1":
        return
    names = ", ".join(sorted({entry.distribution for entry in announced}))
    yield Row(
        WITHOUT_AUTOLOAD,
        f"torch's autoload of {names}",
        _always(f"export {AUTOLOAD}=0, or uninstall {names}"),
        # It stops the package that fails, whatever makes it fail.
        may_be_needed=True,
    )


# --- Variables ------------------------------------------------------------------------


def _loader_rows(program: Program) -> Iterator[Row]:
    for name in program.environ:
        if name.startswith("LD_"):
            yield _variable_row(name, program, _names_a_library)
    for name in program.environ:
        if name.startswith("PYTHON"):
            yield _variable_row(name, program)


def _names_a_library(outcome: Outcome) -> bool:
    pattern = (
        r"\.so\b|undefined symbol|symbol lookup|shared object|GLIBC|SIGSEGV|SIGABRT"
    )
    return re.search(pattern, outcome.failure) is not None


def _device_variable_rows(program: Program) -> Iterator[Row]:
    """Yield the variables of the vendor and of the layers below, the device masks first."""
    if program.verdict is None or program.verdict.backend is None:
        return
    backend = program.verdict.backend
    words = _words_of(backend)
    masking = (*backend.visibility.filters, *backend.visibility.variables)
    first = [name for name in masking if name in program.environ]
    others = [name for name in program.environ if name not in (*first, *_NEVER)]
    chooses = [name for name in others if _CHOOSES.search(name)]
    vendors = [name for name in others if words & set(name.split("_"))]
    for name in dict.fromkeys((*first, *chooses)):
        yield _variable_row(name, program, _has_imported)
    for name in vendors:
        yield _variable_row(name, program)


def _words_of(backend: Backend) -> set[str]:
    """Return words of which the names of the vendor's variables are made: `"ASCEND"`."""
    masking = (*backend.visibility.filters, *backend.visibility.variables)
    names = [*masking, *backend.environment.forward, backend.name, backend.device_type]
    words = {name.upper().replace(".", "_").partition("_")[0] for name in names}
    words |= {word.upper() for word in backend.hardware.name.split()}
    return words - {"", "TORCH", "DEVICE", "GPU"}


def _other_variable_rows(program: Program) -> Iterator[Row]:
    for name in sorted(program.environ):
        if name not in _NEVER:
            yield _variable_row(name, program)


def _variable_row(
    name: str, program: Program, is_likely: Callable[[Outcome], bool] | None = None
) -> Row:
    value = program.environ[name]
    return Row(
        Change(removed=frozenset({name})),
        f"{name}={_shown(name, value)}",
        functools.partial(_variable_step, name, program),
        is_likely or functools.partial(_mentions, name, value),
        may_be_needed=_names_folders(value),
    )


def _shown(name: str, value: str) -> str:
    if _SECRET.search(name):
        return "…"
    if len(value) > _LONGEST:
        return repr(one_line(value[:_LONGEST])) + "…"
    return repr(value)


def _names_folders(value: str) -> bool:
    entries = [entry for entry in value.split(os.pathsep) if entry.startswith("/")]
    return any(os.path.isdir(entry) for entry in entries)  # noqa: PTH112


def _mentions(name: str, value: str, outcome: Outcome) -> bool:
    """Whether the error names the variable, or went through a folder that it names."""
    if name in outcome.failure or (len(value) > 2 and value in outcome.failure):
        return True
    entries = [entry for entry in value.split(os.pathsep) if entry.startswith("/")]
    return name.startswith("PYTHON") and any(_from(e, outcome) for e in entries)


def _has_imported(outcome: Outcome) -> bool:
    """Whether the imports succeeded, so that the devices are in question."""
    return not outcome.stage.startswith("import ")


def _variable_step(name: str, program: Program, outcome: Outcome) -> str:
    backend = program.verdict.backend if program.verdict else None
    if backend is not None and name in (
        *backend.visibility.filters,
        *backend.visibility.variables,
    ):
        return _mended_mask(name, backend, program.environ)
    for entry in program.environ[name].split(os.pathsep):
        files = _from(entry, outcome) if entry.startswith("/") else {}
        if files and name == "PYTHONPATH":
            modules = ", ".join(sorted(files))
            return f"take {entry} out of PYTHONPATH: its {modules} is imported in place of the installed one"
    return f"unset {name}"


def _mended_mask(name: str, backend: Backend, environ: Mapping[str, str]) -> str:
    for effect in masks(backend, environ, inventory(backend)).effects:
        if effect.variable == name and effect.suggestion:
            return f"export {name}={shlex.quote(effect.suggestion)}"
    return f"unset {name}, or name in it the devices to use"


# --- Limits ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Limit:
    """A limit of the process: its name in `resource`, the shell's option, and its errors."""

    name: str
    option: str
    what: str
    pattern: str
    #: Bytes in one unit of the shell's.
    unit: int = 1


_LIMITS = (
    _Limit(
        "RLIMIT_AS",
        "-v",
        "virtual memory",
        r"failed to map|[Cc]annot allocate|MemoryError|bad_alloc|out of memory|SIGABRT|SIGSEGV",
        1024,
    ),
    _Limit(
        "RLIMIT_DATA", "-d", "data segment", r"[Cc]annot allocate|MemoryError", 1024
    ),
    _Limit("RLIMIT_NOFILE", "-n", "open files", r"[Tt]oo many open files|EMFILE"),
    _Limit(
        "RLIMIT_NPROC",
        "-u",
        "processes and threads",
        r"start new thread|temporarily unavailable|pthread_create",
    ),
    _Limit("RLIMIT_STACK", "-s", "stack", r"SIGSEGV|recursion", 1024),
    _Limit("RLIMIT_MEMLOCK", "-l", "locked memory", r"lock", 1024),
    _Limit("RLIMIT_FSIZE", "-f", "file size", r"File too large|SIGXFSZ", 1024),
    _Limit("RLIMIT_CPU", "-t", "CPU time", r"SIGXCPU|SIGKILL"),
)


def _limit_rows(_program: Program) -> Iterator[Row]:
    for limit, soft, hard in _finite_limits():
        target = _raised(limit, soft, hard)
        if target is None:
            continue
        bound = "unlimited" if target[0] < 0 else str(target[0] // limit.unit)
        yield Row(
            Change(limits=((limit.name, target),)),
            f"the limit of {limit.what}, {soft // limit.unit} (ulimit {limit.option})",
            _always(
                f"ulimit {limit.option} {bound}, where the limit is set: in the shell, "
                "the job or the container that starts the program"
            ),
            functools.partial(_matches, limit.pattern),
        )


def untestable(outcome: Outcome) -> list[str]:
    """Return limits that fit the error, and that this user cannot raise, as clauses."""
    return [
        f"the limit of {limit.what}, {soft // limit.unit} (ulimit {limit.option}), which "
        "this user may not raise"
        for limit, soft, hard in _finite_limits()
        if _raised(limit, soft, hard) is None and _matches(limit.pattern, outcome)
    ]


def _finite_limits() -> Iterator[tuple[_Limit, int, int]]:
    try:
        import resource
    except ImportError:  # Windows
        return
    for limit in _LIMITS:
        number = getattr(resource, limit.name, None)
        if number is None:
            continue
        soft, hard = resource.getrlimit(number)
        if soft != resource.RLIM_INFINITY:
            yield limit, soft, hard


def _raised(limit: _Limit, soft: int, hard: int) -> tuple[int, int] | None:
    """Return the higher limit that this user may set; `None` if there is none."""
    if soft != hard:
        return hard, hard
    unlimited = (-1, -1)
    return unlimited if _may_set(limit.name, unlimited) else None


@functools.cache
def _may_set(name: str, pair: tuple[int, int]) -> bool:
    """Whether this user may set a hard limit: tried, as root may lack the right, too."""
    program = f"import resource; resource.setrlimit(resource.{name}, {pair!r})"
    command = [sys.executable, "-I", "-S", "-c", program]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


# --- Folders --------------------------------------------------------------------------


def _folder_rows(program: Program) -> Iterator[Row]:
    empty = _empty_folder()
    for name in ("HOME", "TMPDIR"):
        value = program.environ.get(name, "")
        if name == "HOME" or value:
            yield Row(
                Change(assigned=((name, empty),)),
                f"{name}={_shown(name, value)}",
                functools.partial(_step_for_folder, name, value),
                functools.partial(_is_denied, value),
                how="with an empty folder in place of",
            )
    yield Row(
        Change(folder=empty),
        str(_current_folder()),
        _step_for_current_folder,
        lambda _: not os.access(".", os.W_OK),
        how="started in another folder than",
    )


@functools.cache
def _empty_folder() -> str:
    """Return a folder for the children of this process, which is removed when it ends."""
    folder = tempfile.TemporaryDirectory(prefix="accel-empty-")
    atexit.register(folder.cleanup)
    return folder.name


def _is_denied(folder: str, outcome: Outcome) -> bool:
    """Whether the error says that something may not be read or written, or is not there."""
    pattern = r"Permission|Read-only|denied|No such file|Errno|not writable"
    is_writable = bool(folder) and os.access(folder, os.W_OK)
    return not is_writable and re.search(pattern, outcome.failure) is not None


def _step_for_folder(name: str, value: str, outcome: Outcome) -> str:
    if not value or not os.path.isdir(value):  # noqa: PTH112
        return f"set {name} to a folder that exists and that you may write"
    if not os.access(value, os.W_OK):
        return f"set {name} to a folder that you may write, or get the right to write {value}"
    named = [
        path
        for path in re.findall(r"/[^\s'\":,]+", outcome.failure)
        if path.startswith(value + "/")
    ]
    if named:
        return f"look at {named[0]}: it is damaged, or you may not read or write it"
    return f"something below {value} is damaged, or you may not read or write it"


def _step_for_current_folder(outcome: Outcome) -> str:
    folder = str(_current_folder())
    if not os.access(folder, os.W_OK):
        return f"start the program in a folder that you may write, not in {folder}"
    for name in re.findall(r"[\w.-]+", outcome.failure):
        if os.path.isfile(f"{folder}/{name}"):  # noqa: PTH113
            return f"look at {folder}/{name}, which the error names"
    return _rename(folder, outcome)


# --- Helpers --------------------------------------------------------------------------


def _always(step: str) -> Callable[[Outcome], str]:
    return lambda _outcome: step


def _matches(pattern: str, outcome: Outcome) -> bool:
    return re.search(pattern, outcome.failure) is not None


def _goes_through(path: str, outcome: Outcome) -> bool:
    return path in outcome.places or path in outcome.failure
