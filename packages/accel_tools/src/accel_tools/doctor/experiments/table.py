"""The table of experiments: changes to a child process, and the next step if a change is the cause.

Each environment variable that is set is an experiment, regardless of its name. A successful
experiment proves that the program succeeds with one change and fails without it.
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
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from accel_core import Backend, Provenance, packages
from accel_core.hardware.visible_devices import inventory, masks
from accel_core.text import one_line
from accel_core.torch_import import AUTOLOAD, TORCH_GROUP
from accel_tools.doctor.experiments.search import Experiment
from accel_tools.doctor.experiments.trial import Change, Outcome, Program, StartFile
from accel_tools.doctor.start_files import start_files, variables_at_start

#: Characters of a variable's value that are shown.
_MAX_VALUE = 60
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|(^|_)KEY(_|$)", re.IGNORECASE)
#: Variables that stay set: the shell's own, and those of simulated devices.
_NOT_EXAMINED = (
    "_",
    "SHLVL",
    "PWD",
    "OLDPWD",
    "ACCEL_SIMULATE",
    "ACCEL_SIMULATE_DECLARED",
    "ACCEL_SIMULATE_LIBRARY",
    "ACCEL_SIMULATE_RECORD",
)
#: Words in the names of variables that select devices.
_SELECTS_DEVICES = re.compile(r"VISIBLE|DEVICE|SELECTOR|AFFINITY|MASK|RANK")
#: Start-up files of accel.
_OWN_START_FILES = ("accel_simulated.pth",)
#: torch does not import other distributions' packages.
WITHOUT_AUTOLOAD = Change(assigned=((AUTOLOAD, "0"),))


def experiments(program: Program) -> list[Experiment]:
    """Return the experiments that apply to the program on this machine, in the order of trying."""
    makers = (
        _device_variables,
        _script_folder,
        _start_files,
        _loader_variables,
        _user_site,
        _compiled_files,
        _limits,
        _folders,
        _other_variables,
        _autoload,
    )
    by_name: dict[str, Experiment] = {}
    for maker in makers:
        for experiment in maker(program):
            by_name.setdefault(experiment.name, experiment)
    return list(by_name.values())


@dataclass(frozen=True)
class PythonPath:
    """The folders in which this Python finds packages, and its start-up files."""

    folders: tuple[str, ...]
    user_folder: str
    start_files: tuple[StartFile, ...]


def python_path() -> PythonPath:
    """Return the folders in which this Python finds packages, and its start-up files."""
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


def _start_files(program: Program) -> Iterator[Experiment]:
    # This process has run the files too, so that its variables contain what they set.
    before = variables_at_start(program.environ)
    removed = frozenset(program.environ.keys() - before.keys())
    changed = before.items() - program.environ.items()
    for file in program.start_files:
        if PurePath(file.path).name in _OWN_START_FILES:
            continue
        owner = next((f.distribution for f in start_files() if f.path == file.path), "")
        step = f"remove {file.path}, which runs when Python starts"
        if owner:
            step = f"pip uninstall {owner.partition(' ')[0]}, or upgrade it"
        yield Experiment(
            Change(
                without_start_files=frozenset({file.path}),
                removed=removed,
                assigned=tuple(sorted(changed)),
            ),
            f"the start-up file {file.path}",
            _always(step),
            functools.partial(_may_be_spoiled_by, file.path, owner),
            may_be_needed=True,
        )


def _may_be_spoiled_by(path: str, owner: str, outcome: Outcome) -> bool:
    """Return whether the error went through the start-up file, or a person wrote that file."""
    return not owner or _goes_through(path, outcome)


def _script_folder(_program: Program) -> Iterator[Experiment]:
    folder = _current_folder()
    if folder is None or not _has_modules(folder):
        return
    yield Experiment(
        Change(without_folder=True),
        f"the modules in {folder}",
        functools.partial(_rename_step, str(folder)),
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


def _rename_step(folder: str, outcome: Outcome) -> str:
    """Return the next step if modules in `folder` shadow installed modules."""
    files = _from(folder, outcome)
    if not files:
        return f"start the program from another folder than {folder}"
    paths = " and ".join(sorted(files.values()))
    names = ", ".join(sorted(files))
    return f"rename {paths}, which Python imports instead of another module {names}"


def _from(folder: str, outcome: Outcome) -> dict[str, str]:
    """Return the modules directly in `folder` that the program loaded, with their files."""
    deeper = [e for e in sys.path if e.startswith(folder + os.sep)]
    found: dict[str, str] = {}
    for file in (*outcome.loaded.values(), *outcome.places):
        is_deeper = any(file.startswith(entry + os.sep) for entry in deeper)
        if is_deeper or not file.startswith(folder + os.sep):
            continue
        top = Path(folder, PurePath(file).relative_to(folder).parts[0])
        found[top.name.partition(".")[0]] = str(top)
    return found


def _user_site(program: Program) -> Iterator[Experiment]:
    user = program.user_site
    if not user or not Path(user).is_dir():
        return
    yield Experiment(
        Change(without_user_site=True),
        f"the packages in {user}",
        functools.partial(_step_without_user_site, user),
        lambda outcome: bool(_from(user, outcome)),
    )


def _step_without_user_site(user: str, outcome: Outcome) -> str:
    names = ", ".join(sorted(_from(user, outcome)))
    package = f"the package {names}" if names else "the failing package"
    return f"export PYTHONNOUSERSITE=1, or remove {package} from {user}"


def _compiled_files(program: Program) -> Iterator[Experiment]:
    """Yield an experiment without the compiled files of Python, which a full disk may have damaged."""
    folders = [folder for folder in program.site if Path(folder).is_dir()]
    if not folders:
        return
    prefix = _empty_folder("PYTHONPYCACHEPREFIX")
    yield Experiment(
        Change(
            # The second of two runs reads what the first has compiled.
            removed=frozenset({"PYTHONDONTWRITEBYTECODE"}),
            assigned=(("PYTHONPYCACHEPREFIX", prefix),),
        ),
        f"Python's compiled files in {' and '.join(folders)}",
        _always(f"find {shlex.join(folders)} -name '*.pyc' -delete"),
        functools.partial(_matches, r"marshal|Non-code object|magic number"),
        # Compiling torch's modules again takes as long as many other experiments.
        only_if_likely=True,
    )


def _autoloaded() -> list[Provenance]:
    """Return the entry points that torch's autoload loads, without those of accel-train."""
    entry_points = packages.entry_points(TORCH_GROUP)
    return [entry for entry in entry_points if entry.distribution != "accel-train"]


def extensions() -> list[tuple[str, str]]:
    """Return what torch's autoload calls, as `"module:function"`, with the distribution of each."""
    autoloaded = _autoloaded()
    return [(entry.value.replace(" ", ""), str(entry)) for entry in autoloaded]


def _autoload(program: Program) -> Iterator[Experiment]:
    autoloaded = _autoloaded()
    if not autoloaded or program.environ.get(AUTOLOAD, "1") != "1":
        return
    names = ", ".join(sorted({entry.distribution for entry in autoloaded}))
    yield Experiment(
        WITHOUT_AUTOLOAD,
        f"torch's autoload of {names}",
        _always(f"export {AUTOLOAD}=0, or uninstall {names}"),
        lambda outcome: "backend extension" in outcome.raised,
        # It stops the package that fails, whatever the cause of that failure.
        may_be_needed=True,
    )


# --- Variables ------------------------------------------------------------------------


def _loader_variables(program: Program) -> Iterator[Experiment]:
    for name in program.environ:
        if name in ("LD_PRELOAD", "LD_AUDIT"):
            # Their libraries replace functions of every program.
            yield _variable(name, program, lambda _outcome: True)
        elif name.startswith("LD_"):
            yield _variable(name, program, _names_a_library)
    for name in program.environ:
        if name.startswith("PYTHON"):
            yield _variable(name, program)


def _names_a_library(outcome: Outcome) -> bool:
    pattern = (
        r"\.so\b|undefined symbol|symbol lookup|shared object|GLIBC|SIGSEGV|SIGABRT"
    )
    return re.search(pattern, outcome.failure) is not None


def _device_variables(program: Program) -> Iterator[Experiment]:
    """Yield experiments without variables that select devices, then without the vendor's variables."""
    backend = program.verdict.backend if program.verdict else None
    if backend is None:
        return
    masks = [name for name in _mask_variables(backend) if name in program.environ]
    others = [name for name in program.environ if name not in (*masks, *_NOT_EXAMINED)]
    for name in (*masks, *filter(_SELECTS_DEVICES.search, others)):
        yield _variable(name, program, _has_imported)
    words = _vendor_words(backend)
    for name in others:
        if words.intersection(name.split("_")):
            yield replace(_variable(name, program), is_related=True)


def _mask_variables(backend: Backend) -> tuple[str, ...]:
    return (*backend.visibility.filters, *backend.visibility.variables)


def _vendor_words(backend: Backend) -> set[str]:
    """Return words that the names of the vendor's variables contain, such as `"ASCEND"`."""
    names = [*_mask_variables(backend), *backend.environment.forward]
    names += [backend.name, backend.device_type]
    words = {name.upper().replace(".", "_").partition("_")[0] for name in names}
    words |= {word.upper() for word in backend.hardware.name.split()}
    return words - {"", "TORCH", "DEVICE", "GPU"}


def _other_variables(program: Program) -> Iterator[Experiment]:
    for name in sorted(program.environ):
        if name not in _NOT_EXAMINED:
            yield _variable(name, program)


def _variable(
    name: str, program: Program, is_likely: Callable[[Outcome], bool] | None = None
) -> Experiment:
    value = program.environ[name]
    return Experiment(
        Change(removed=frozenset({name})),
        f"{name}={_shown(name, value)}",
        functools.partial(_variable_step, name, program),
        is_likely or functools.partial(_mentions, name, value),
        may_be_needed=_names_folders(value),
        is_related=value.startswith("/") and not os.path.exists(value),  # noqa: PTH110
    )


def _shown(name: str, value: str) -> str:
    if _SECRET.search(name):
        return "…"
    if len(value) > _MAX_VALUE:
        return repr(one_line(value[:_MAX_VALUE])) + "…"
    return repr(value)


def _names_folders(value: str) -> bool:
    entries = [entry for entry in value.split(os.pathsep) if entry.startswith("/")]
    return any(os.path.isdir(entry) for entry in entries)  # noqa: PTH112


def _mentions(name: str, value: str, outcome: Outcome) -> bool:
    """Return whether the error contains the variable's name or value, or passed through its folders."""
    if name in outcome.failure or (len(value) > 2 and value in outcome.failure):
        return True
    entries = [entry for entry in value.split(os.pathsep) if entry.startswith("/")]
    return name.startswith("PYTHON") and any(_from(e, outcome) for e in entries)


def _has_imported(outcome: Outcome) -> bool:
    """Return whether the imports succeeded, so that the failure is in the use of devices."""
    return not outcome.stage.startswith("import ")


def _variable_step(name: str, program: Program, outcome: Outcome) -> str:
    backend = program.verdict.backend if program.verdict else None
    if backend is not None and name in _mask_variables(backend):
        return _mask_step(name, backend, program.environ)
    for entry in program.environ[name].split(os.pathsep):
        files = _from(entry, outcome) if entry.startswith("/") else {}
        if files and name == "PYTHONPATH":
            modules = ", ".join(sorted(files))
            return (
                f"remove {entry} from PYTHONPATH: its {modules} is imported instead of "
                "the installed one"
            )
    return f"unset {name}"


def _mask_step(name: str, backend: Backend, environ: Mapping[str, str]) -> str:
    for effect in masks(backend, environ, inventory(backend)).effects:
        if effect.variable == name and effect.suggestion:
            return f"export {name}={shlex.quote(effect.suggestion)}"
    return f"unset {name}, or set it to the devices to use"


# --- Limits ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Limit:
    """A resource limit of the process."""

    #: The limit's name in the module `resource`.
    name: str
    #: The limit's option of the shell command `ulimit`.
    option: str
    #: The limited resource, for people.
    what: str
    #: A pattern of the errors of a program that reaches the limit.
    pattern: str
    #: The number of bytes in one unit of `ulimit`; 1 for limits that are not in bytes.
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


def _limits(_program: Program) -> Iterator[Experiment]:
    for limit, soft, hard in _finite_limits():
        target = _raised(limit, soft, hard)
        if target is None:
            continue
        bound = "unlimited" if target[0] < 0 else str(target[0] // limit.unit)
        yield Experiment(
            Change(limits=((limit.name, target),)),
            f"the limit of {limit.what}, {soft // limit.unit} (ulimit {limit.option})",
            _always(
                f"ulimit {limit.option} {bound}, where the limit is set: in the shell, "
                "the job or the container that starts the program"
            ),
            functools.partial(_matches, limit.pattern),
        )


def untestable(outcome: Outcome) -> list[str]:
    """Return a clause on each limit that may explain the error, but that this user may not raise."""
    clauses = []
    for limit, soft, hard in _finite_limits():
        if _raised(limit, soft, hard) is None and _matches(limit.pattern, outcome):
            clauses.append(
                f"the limit of {limit.what}, {soft // limit.unit} (ulimit {limit.option}), "
                "which this user may not raise"
            )
    return clauses


def _finite_limits() -> Iterator[tuple[_Limit, int, int]]:
    """Yield each limit that is set, with its soft and hard value."""
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
    """Return the higher soft and hard limit that this user may set, or `None`."""
    if soft != hard:
        return hard, hard
    unlimited = (-1, -1)
    return unlimited if _may_set(limit.name, unlimited) else None


@functools.cache
def _may_set(name: str, pair: tuple[int, int]) -> bool:
    """Return whether this user may set a hard limit.

    A child process tries to set the limit, because even root may lack the permission.
    """
    program = f"import resource; resource.setrlimit(resource.{name}, {pair!r})"
    command = [sys.executable, "-I", "-S", "-c", program]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


# --- Folders --------------------------------------------------------------------------


def _folders(program: Program) -> Iterator[Experiment]:
    empty = _empty_folder()
    for name in ("HOME", "TMPDIR"):
        value = program.environ.get(name, "")
        if name == "HOME" or value:
            yield Experiment(
                Change(assigned=((name, empty),)),
                f"{name}={_shown(name, value)}",
                functools.partial(_step_for_folder, name, value),
                functools.partial(_is_denied, value),
                preposition="with an empty folder instead of",
            )
    yield Experiment(
        Change(folder=empty),
        str(_current_folder() or "the current one, which does not exist"),
        _step_for_current_folder,
        lambda _: not os.access(".", os.W_OK),
        preposition="started in another folder than",
    )


@functools.cache
def _empty_folder(_purpose: str = "") -> str:
    """Return an empty folder for child processes, one for each purpose, which is removed at exit."""
    folder = tempfile.TemporaryDirectory(prefix="accel-empty-")
    atexit.register(folder.cleanup)
    return folder.name


def _is_denied(folder: str, outcome: Outcome) -> bool:
    """Return whether `folder` is not writable, and the error is about a missing or protected file."""
    pattern = r"Permission|Read-only|denied|No such file|Errno|not writable"
    is_writable = bool(folder) and os.access(folder, os.W_OK)
    return not is_writable and re.search(pattern, outcome.failure) is not None


def _step_for_folder(name: str, value: str, outcome: Outcome) -> str:
    if not value or not os.path.isdir(value):  # noqa: PTH112
        return f"set {name} to an existing folder that you may write to"
    if not os.access(value, os.W_OK):
        return f"set {name} to a folder that you may write to, or make {value} writable"
    for path in re.findall(r"/[^\s'\":,]+", outcome.failure):
        if path.startswith(f"{value}/"):
            return f"check {path}: it is damaged, or you may not read or write it"
    return f"check the files below {value}: one is damaged, or you may not read or write it"


def _step_for_current_folder(outcome: Outcome) -> str:
    folder = str(_current_folder() or "")
    if not folder:
        return "cd to a folder that exists: the current one was removed or replaced"
    if not os.access(folder, os.W_OK):
        return f"start the program in a folder that you may write to, not in {folder}"
    for name in re.findall(r"[\w.-]+", outcome.failure):
        if os.path.isfile(f"{folder}/{name}"):  # noqa: PTH113
            return f"check {folder}/{name}, which the error names"
    return _rename_step(folder, outcome)


# --- Helpers --------------------------------------------------------------------------


def _always(step: str) -> Callable[[Outcome], str]:
    return lambda _outcome: step


def _matches(pattern: str, outcome: Outcome) -> bool:
    return re.search(pattern, outcome.failure) is not None


def _goes_through(path: str, outcome: Outcome) -> bool:
    return path in outcome.places or path in outcome.failure
