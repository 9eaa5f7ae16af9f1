"""Create the experiments on a failing program: changes, and the next step if a change is the cause.

There is one experiment for each environment variable that is set, whatever its name. A successful
experiment proves that the program succeeds with one change and fails without it.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
import shlex
import site
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path, PurePath
from typing import NamedTuple

from accel_core import Backend, Provenance, packages
from accel_core.hardware.visible_devices import inventory, read_visible_devices
from accel_core.text import one_line
from accel_core.torch_import import AUTOLOAD, TORCH_GROUP
from accel_tools.doctor.experiments.default_places import default_place_experiments
from accel_tools.doctor.experiments.process_settings import process_setting_experiments
from accel_tools.doctor.experiments.search import (
    Experiment,
    failure_matches,
    fixed_step,
)
from accel_tools.doctor.experiments.trial import Change, Outcome, Program, StartFile
from accel_tools.doctor.libraries import other_copies_of_libraries
from accel_tools.doctor.start_files import find_start_files, variables_at_start

#: The maximum number of characters of a variable's value that are shown.
_MAX_VALUE = 60
#: A pattern of the names of variables whose values are not shown.
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|(^|_)KEY(_|$)", re.IGNORECASE)
#: Variables that no experiment unsets: the shell's variables, and the variables of simulated devices.
_KEPT_VARIABLES = (
    "_",
    "SHLVL",
    "PWD",
    "OLDPWD",
    "ACCEL_SIMULATE",
    "ACCEL_SIMULATE_DECLARED",
    "ACCEL_SIMULATE_LIBRARY",
    "ACCEL_SIMULATE_RECORD",
    "ACCEL_CACHE",
)
#: Beginnings of variables' names that are also words of errors that the variables do not cause.
_PREFIXES_IN_ANY_ERROR = ("PYTHON", "TORCH", "PYTORCH", "SSL", "LIB", "FILE", "HOME")
#: Words in the names of variables that select devices.
_SELECTS_DEVICES = re.compile(r"VISIBLE|DEVICE|SELECTOR|AFFINITY|MASK|RANK")
#: Start-up files of accel, with which no experiment runs.
_ACCEL_START_FILES = ("accel_simulated.pth",)
#: The change after which torch does not import packages of other distributions.
WITHOUT_AUTOLOAD = Change(set_variables=((AUTOLOAD, "0"),))


def experiments(program: Program) -> list[Experiment]:
    """Return the experiments that apply to the program on this machine, in the order to try them."""
    sources = (
        _default_place_experiments,
        _device_variable_experiments,
        _script_folder_experiments,
        _start_file_experiments,
        _loader_variable_experiments,
        _library_copy_experiments,
        _user_site_experiments,
        _compiled_file_experiments,
        process_setting_experiments,
        _folder_experiments,
        _other_variable_experiments,
        _autoload_experiments,
    )
    return _experiments_of(sources, program)


def _experiments_of(
    sources: Sequence[Callable[[Program], Iterator[Experiment]]], program: Program
) -> list[Experiment]:
    """Return the experiments of all sources; of two with the same name, only the first."""
    by_name: dict[str, Experiment] = {}
    for source in sources:
        for experiment in source(program):
            by_name.setdefault(experiment.name, experiment)
    return list(by_name.values())


def variable_and_setting_experiments(program: Program) -> list[Experiment]:
    """Return experiments without each environment variable, and with other process settings.

    The variables of the dynamic loader and of Python come first.
    """
    sources = (
        _loader_variable_experiments,
        process_setting_experiments,
        _other_variable_experiments,
    )
    return _experiments_of(sources, program)


@dataclass(frozen=True)
class PythonPath:
    """The folders in which this Python finds packages, and its start-up files."""

    folders: tuple[str, ...]
    #: The folder with the user's packages, or an empty string if this Python does not use such a folder.
    user_folder: str
    start_files: tuple[StartFile, ...]


def python_path() -> PythonPath:
    """Return the folders in which this Python finds packages, and its start-up files."""
    user_folder = site.getusersitepackages() if site.ENABLE_USER_SITE else ""
    folders = site.getsitepackages()
    if user_folder:
        folders = [user_folder, *folders]
    added_folders: list[str] = []
    for folder in folders:
        added_folders += _folders_in_pth_files(Path(folder))
    files = tuple(StartFile(file.path, file.lines) for file in find_start_files())
    return PythonPath((*folders, *added_folders), user_folder, files)


def _folders_in_pth_files(folder: Path) -> Iterator[str]:
    """Yield the folders that the `.pth` files in `folder` add to `sys.path`."""
    for file in sorted(folder.glob("*.pth")):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            is_code_or_comment = line.startswith(("#", "import ", "import\t"))
            if line.strip() and not is_code_or_comment:
                yield str(folder / line.strip())


# --- Python's path and start-up files -------------------------------------------------


def _start_file_experiments(program: Program) -> Iterator[Experiment]:
    """Yield one experiment without each start-up file."""
    distributions = {file.path: file.distribution for file in find_start_files()}
    # This process has run the files too, so its variables contain what the files have set.
    earlier_environ = variables_at_start(program.environ)
    added_names = frozenset(program.environ.keys() - earlier_environ.keys())
    earlier_values = earlier_environ.items() - program.environ.items()
    for file in program.start_files:
        if PurePath(file.path).name in _ACCEL_START_FILES:
            continue
        distribution = distributions.get(file.path, "")
        step = f"remove {file.path}, which runs when Python starts"
        if distribution:
            name = distribution.partition(" ")[0]
            step = f"pip install --upgrade {name}, or pip uninstall {name}"
        yield Experiment(
            change=Change(
                without_start_files=frozenset({file.path}),
                unset_variables=added_names,
                set_variables=tuple(sorted(earlier_values)),
            ),
            name=f"the start-up file {file.path}",
            step=fixed_step(step),
            is_likely=functools.partial(_is_start_file_likely, file.path, distribution),
            may_be_needed=True,
        )


def _is_start_file_likely(path: str, distribution: str, outcome: Outcome) -> bool:
    """Return whether a start-up file is likely to cause a program's failure.

    This is likely if the file is in a traceback or in the error, or if no distribution installed the file,
    so that a person probably wrote it.
    """
    is_in_traceback = path in outcome.traceback_files
    return not distribution or is_in_traceback or path in outcome.failure


def _script_folder_experiments(_program: Program) -> Iterator[Experiment]:
    """Yield the experiment without the modules in the working folder, if it contains modules."""
    folder = _current_folder()
    if folder is None or not _has_modules(folder):
        return
    yield Experiment(
        change=Change(without_script_folder=True),
        name=f"the modules in {folder}",
        step=functools.partial(_step_for_shadowing_modules, str(folder)),
        is_likely=functools.partial(_has_loaded_from, str(folder)),
    )


def _current_folder() -> Path | None:
    """Return the working folder, or `None` if it was removed."""
    try:
        return Path.cwd()
    except OSError:
        return None


def _has_modules(folder: Path) -> bool:
    """Return whether the folder directly contains Python modules or packages."""
    try:
        entries = list(folder.iterdir())
    except OSError:
        return False
    for entry in entries:
        is_module = entry.suffix in (".py", ".pyc", ".so")
        if is_module or (entry / "__init__.py").exists():
            return True
    return False


def _step_for_shadowing_modules(folder: str, outcome: Outcome) -> str:
    """Return the next step if modules in `folder` shadow installed modules."""
    files = _modules_loaded_from(folder, outcome)
    if not files:
        return f"start the program in a folder other than {folder}"
    paths = " and ".join(sorted(files.values()))
    modules = ", ".join(sorted(files))
    return f"rename {paths}, which Python imports instead of the installed {modules}"


def _has_loaded_from(folder: str, outcome: Outcome) -> bool:
    return bool(_modules_loaded_from(folder, outcome))


def _modules_loaded_from(folder: str, outcome: Outcome) -> dict[str, str]:
    """Return the modules directly in `folder` that the program loaded, with their files.

    Modules of a subfolder that is in `sys.path` are not directly in `folder`.
    """
    prefix = folder + os.sep
    # A subfolder that Python searches by itself, such as site-packages, has modules of its own.
    subfolders = tuple(entry + os.sep for entry in sys.path if entry.startswith(prefix))
    modules: dict[str, str] = {}
    for file in (*outcome.module_files.values(), *outcome.traceback_files):
        if not file.startswith(prefix) or file.startswith(subfolders):
            continue
        first_part = PurePath(file).relative_to(folder).parts[0]
        module = first_part.partition(".")[0]
        modules[module] = str(Path(folder, first_part))
    return modules


def _user_site_experiments(program: Program) -> Iterator[Experiment]:
    """Yield the experiment without the folder with the user's packages, if the folder exists."""
    folder = program.user_site
    if not folder or not Path(folder).is_dir():
        return
    yield Experiment(
        change=Change(without_user_site=True),
        name=f"the packages in {folder}",
        step=functools.partial(_step_for_user_site, folder),
        is_likely=functools.partial(_has_loaded_from, folder),
    )


def _step_for_user_site(folder: str, outcome: Outcome) -> str:
    """Return the next step if a package in `folder`, the user's folder of packages, is the cause."""
    names = ", ".join(sorted(_modules_loaded_from(folder, outcome)))
    package = f"the package {names}" if names else "the failing package"
    return f"export PYTHONNOUSERSITE=1, or remove {package} from {folder}"


def _compiled_file_experiments(program: Program) -> Iterator[Experiment]:
    """Yield the experiment without Python's compiled files, which a full disk may have damaged."""
    folders = [folder for folder in program.package_folders if Path(folder).is_dir()]
    if not folders:
        return
    prefix = _empty_folder("PYTHONPYCACHEPREFIX")
    yield Experiment(
        change=Change(
            # The second run reads the files that the first run has compiled.
            unset_variables=frozenset({"PYTHONDONTWRITEBYTECODE"}),
            set_variables=(("PYTHONPYCACHEPREFIX", prefix),),
        ),
        name=f"Python's compiled files in {' and '.join(folders)}",
        step=fixed_step(f"find {shlex.join(folders)} -name '*.pyc' -delete"),
        is_likely=failure_matches(
            r"marshal|Non-code object|magic number|cannot import name|has no attribute|NameError|argument"
        ),
        # Compiling torch's modules again takes as long as many other experiments.
        is_slow=True,
    )


# --- torch's autoload -----------------------------------------------------------------


class AutoloadFunction(NamedTuple):
    """A function that torch's autoload calls when torch is imported."""

    #: The module and the function, such as `"torch_npu:_autoload"`.
    path: str
    #: The distribution and its version, such as `"torch-npu 2.9.0"`.
    distribution: str


def autoload_functions() -> list[AutoloadFunction]:
    """Return the functions that torch's autoload calls when torch is imported."""
    functions = []
    for entry in _autoload_entry_points():
        path = entry.value.replace(" ", "")
        functions.append(AutoloadFunction(path, str(entry)))
    return functions


def _autoload_entry_points() -> list[Provenance]:
    """Return the entry points that torch's autoload loads, without those of accel-train."""
    entry_points = packages.entry_points(TORCH_GROUP)
    return [entry for entry in entry_points if entry.distribution != "accel-train"]


def _distributions_with_unreadable_entry_points() -> list[str]:
    """Return the names of the distributions whose `entry_points.txt` cannot be read."""
    names = []
    for distribution in metadata.distributions():
        try:
            distribution.read_text("entry_points.txt")
        except (OSError, ValueError):  # For example, the file is not UTF-8.
            names.append(str(distribution.metadata["Name"]))
    return names


def _autoload_experiments(program: Program) -> Iterator[Experiment]:
    """Yield the experiment without torch's autoload, if the autoload is on.

    The autoload reads the entry points of all distributions, also if none has one for the autoload.
    """
    if program.environ.get(AUTOLOAD, "1") != "1":
        return
    entry_points = _autoload_entry_points()
    distributions = sorted({entry.distribution for entry in entry_points})
    name, step = "torch's autoload", f"export {AUTOLOAD}=0"
    if distributions:
        listed = ", ".join(distributions)
        name = f"{name} of {listed}"
        step = (
            f"for a program that does not need {listed}: {step}, or uninstall {listed}"
        )
    unreadable = _distributions_with_unreadable_entry_points()
    if unreadable:
        step = f"reinstall {', '.join(unreadable)}: its file entry_points.txt cannot be read"
    yield Experiment(
        change=WITHOUT_AUTOLOAD,
        name=name,
        step=fixed_step(step),
        # Without the autoload, the failing package does not run, whatever the cause of its failure. So the
        # experiment is not likely: it proves something only if all other changes have no effect.
        may_be_needed=True,
    )


# --- Variables ------------------------------------------------------------------------


def _loader_variable_experiments(program: Program) -> Iterator[Experiment]:
    """Yield experiments without the variables of the dynamic loader, then without those of Python."""

    def is_always_likely(_outcome: Outcome) -> bool:
        return True

    for name in program.environ:
        if name in ("LD_PRELOAD", "LD_AUDIT"):
            # The libraries in these variables replace functions of every program.
            yield _without_variable(name, program, is_likely=is_always_likely)
        elif name.startswith("LD_"):
            yield _without_variable(name, program, is_likely=_is_library_failure)
    for name in program.environ:
        if name.startswith("PYTHON"):
            yield _without_variable(name, program)


def _library_copy_experiments(program: Program) -> Iterator[Experiment]:
    """Yield experiments with each folder in which the loader finds a second copy of a library."""
    current_path = program.environ.get("LD_LIBRARY_PATH", "")
    for folder, names in other_copies_of_libraries().items():
        new_path = f"{folder}:{current_path}" if current_path else folder
        yield Experiment(
            change=Change(set_variables=(("LD_LIBRARY_PATH", new_path),)),
            name=f"{folder} first in the search for libraries",
            step=fixed_step(
                f"export LD_LIBRARY_PATH={shlex.quote(new_path)}, or remove the folder of the wrong copy "
                "from /etc/ld.so.conf.d and run ldconfig as root"
            ),
            is_likely=functools.partial(_mentions_any, frozenset(names)),
            preposition="with",
            only_if_likely=True,
        )


def _mentions_any(names: frozenset[str], outcome: Outcome) -> bool:
    return any(name in outcome.failure for name in names)


def _is_library_failure(outcome: Outcome) -> bool:
    """Return whether the error is typical of a library that is missing, or of a wrong version."""
    pattern = (
        r"\.so\b|undefined symbol|symbol lookup|shared object|GLIBC|SIGSEGV|SIGABRT"
    )
    return outcome.matches(pattern)


def _device_variable_experiments(program: Program) -> Iterator[Experiment]:
    """Yield experiments without variables that select devices, then without the vendor's variables."""
    backend = program.verdict.backend if program.verdict else None
    if backend is None:
        return
    declared = visibility_variables(backend)
    set_declared = [name for name in declared if name in program.environ]
    others = _undeclared_variables(program, declared)
    selecting = [name for name in others if _SELECTS_DEVICES.search(name)]
    for name in (*set_declared, *selecting):
        yield _without_variable(name, program, is_likely=_imports_succeeded)
    vendor_words = _vendor_words(backend)
    for name in others:
        is_of_vendor = not vendor_words.isdisjoint(name.split("_"))
        if is_of_vendor:
            yield replace(_without_variable(name, program), is_related=True)


def visibility_variables(backend: Backend) -> tuple[str, ...]:
    """Return the names of the variables that limit the backend's visible devices."""
    return (*backend.visibility.filters, *backend.visibility.variables)


def _undeclared_variables(program: Program, declared: Sequence[str]) -> list[str]:
    """Return the program's variables that are not in `declared` and that an experiment may unset."""
    names = []
    for name in program.environ:
        if name not in declared and name not in _KEPT_VARIABLES:
            names.append(name)
    return names


def _vendor_words(backend: Backend) -> set[str]:
    """Return words that the names of the vendor's variables contain, such as `"ASCEND"`."""
    names = [
        *visibility_variables(backend),
        *backend.environment.forward,
        backend.name,
        backend.device_type,
    ]
    words = set()
    for name in names:
        first_word = name.upper().replace(".", "_").partition("_")[0]
        words.add(first_word)
    words.update(backend.hardware.name.upper().split())
    # Words that variables of any vendor may contain are left out.
    return words - {"", "TORCH", "DEVICE", "GPU"}


def _other_variable_experiments(program: Program) -> Iterator[Experiment]:
    """Yield one experiment without each variable, in alphabetical order."""
    for name in sorted(program.environ):
        if name not in _KEPT_VARIABLES:
            yield _without_variable(name, program)


def _without_variable(
    name: str, program: Program, is_likely: Callable[[Outcome], bool] | None = None
) -> Experiment:
    """Return the experiment that runs the program without the variable called `name`.

    By default the experiment is likely if the failure mentions the variable.
    """
    value = program.environ[name]
    if is_likely is None:
        is_likely = functools.partial(_failure_mentions_variable, name, value)
    return Experiment(
        change=Change(unset_variables=frozenset({name})),
        name=f"{name}={_displayed_value(name, value)}",
        step=functools.partial(_variable_step, name, program),
        is_likely=is_likely,
        may_be_needed=_contains_folder(value),
        is_related=value.startswith("/") and not os.path.exists(value),  # noqa: PTH110
    )


def _displayed_value(name: str, value: str) -> str:
    """Return the value of the variable called `name` for display: shortened, and `…` for a secret."""
    if _SECRET.search(name):
        return "…"
    if len(value) > _MAX_VALUE:
        return repr(one_line(value[:_MAX_VALUE])) + "…"
    return repr(value)


def _contains_folder(value: str) -> bool:
    """Return whether a list of paths such as `"/a:/b"` contains the path of an existing folder."""
    paths = [path for path in value.split(os.pathsep) if path.startswith("/")]
    return any(os.path.isdir(path) for path in paths)  # noqa: PTH112


def _failure_mentions_variable(name: str, value: str, outcome: Outcome) -> bool:
    """Return whether the error contains the variable's name or value.

    For a variable of Python, the result is also true if the program loaded a module from one of the
    folders in the variable.
    """
    # A value of one or two characters may occur in any error.
    is_value_in_failure = len(value) > 2 and value in outcome.failure
    if name in outcome.failure or is_value_in_failure:
        return True
    if _failure_names_reader(name, outcome):
        return True
    if not name.startswith("PYTHON"):
        return False
    folders = [path for path in value.split(os.pathsep) if path.startswith("/")]
    return any(_has_loaded_from(folder, outcome) for folder in folders)


def _failure_names_reader(name: str, outcome: Outcome) -> bool:
    """Return whether the error names the software that reads the variable called `name`.

    For example, libgomp reads OMP_NUM_THREADS, and "libgomp" contains "omp".
    """
    prefix, underscore, _ = name.partition("_")
    if not underscore or len(prefix) < 3 or prefix in _PREFIXES_IN_ANY_ERROR:
        return False
    return prefix.lower() in outcome.failure.lower()


def _imports_succeeded(outcome: Outcome) -> bool:
    """Return whether the program failed after its imports, when it used the devices."""
    return not outcome.stage.startswith("import ")


def _variable_step(name: str, program: Program, outcome: Outcome) -> str:
    """Return the next step if the variable called `name` is the cause of the program's failure."""
    backend = program.verdict.backend if program.verdict else None
    if backend is not None and name in visibility_variables(backend):
        return _visibility_step(name, backend, program.environ)
    if name != "PYTHONPATH":
        return f"unset {name}"
    for path in program.environ[name].split(os.pathsep):
        files = _modules_loaded_from(path, outcome) if path.startswith("/") else {}
        if files:
            modules = ", ".join(sorted(files))
            return (
                f"remove {path} from PYTHONPATH: Python imports {modules} from there instead of the "
                f"installed {modules}"
            )
    return f"unset {name}"


def _visibility_step(name: str, backend: Backend, environ: Mapping[str, str]) -> str:
    """Return the next step if the variable called `name` hides devices or has a wrong value."""
    for effect in read_visible_devices(backend, environ, inventory(backend)).effects:
        if effect.variable == name and effect.suggestion:
            return f"export {name}={shlex.quote(effect.suggestion)}"
    return f"unset {name}, or set it to the devices to use"


# --- Folders --------------------------------------------------------------------------


def _folder_experiments(program: Program) -> Iterator[Experiment]:
    """Yield experiments with an empty folder as `HOME`, as `TMPDIR` if it is set, and as working folder."""
    empty = _empty_folder()
    for name in ("HOME", "TMPDIR"):
        value = program.environ.get(name, "")
        # Without HOME, Python reads the home folder from the password database.
        if name == "HOME" or value:
            yield Experiment(
                change=Change(set_variables=((name, empty),)),
                name=f"{name}={_displayed_value(name, value)}",
                step=functools.partial(_step_for_folder_variable, name, value),
                is_likely=functools.partial(_is_access_failure, value),
                preposition="with an empty folder instead of",
            )
    current = _current_folder()
    working_folder = "an existing working folder"
    if current is not None:
        working_folder = f"an empty working folder instead of {current}"
    yield Experiment(
        change=Change(working_folder=empty),
        name=working_folder,
        step=_step_for_working_folder,
        is_likely=lambda _outcome: not os.access(".", os.W_OK),
        preposition="in",
    )


def _default_place_experiments(program: Program) -> Iterator[Experiment]:
    """Yield experiments with an empty folder instead of each default place of pipes, caches and settings."""
    yield from default_place_experiments(program.environ, _empty_folder())


@functools.cache
def _empty_folder(_purpose: str = "") -> str:
    """Return an empty folder for child processes, one for each purpose, which is removed at exit."""
    folder = tempfile.TemporaryDirectory(prefix="accel-empty-")
    atexit.register(folder.cleanup)
    return folder.name


def _is_access_failure(folder: str, outcome: Outcome) -> bool:
    """Return whether `folder` is not writable, and the error is about a missing or protected file."""
    is_writable = bool(folder) and os.access(folder, os.W_OK)
    pattern = r"Permission|Read-only|denied|No such file|Errno|not writable"
    return not is_writable and outcome.matches(pattern)


def _step_for_folder_variable(name: str, folder: str, outcome: Outcome) -> str:
    """Return the next step if the variable called `name`, such as `HOME`, contains a bad folder."""
    if not folder or not os.path.isdir(folder):  # noqa: PTH112
        return f"set {name} to an existing folder that you may write to"
    if not os.access(folder, os.W_OK):
        return (
            f"set {name} to a folder that you may write to, or make {folder} writable"
        )
    paths_in_error = re.findall(r"/[^\s'\":,]+", outcome.failure)
    for path in paths_in_error:
        if path.startswith(f"{folder}/"):
            return (
                f"check {path}: the file is damaged, or you lack permission to use it"
            )
    if name == "TMPDIR":
        return f"export TMPDIR=FOLDER, where FOLDER is an empty folder; or remove old files from {folder}"
    return (
        f"to find the cause, rename the hidden files and folders in {folder} one by one, such as .cache and "
        ".config: the program works without them"
    )


def _step_for_working_folder(outcome: Outcome) -> str:
    """Return the next step if the program works in another working folder."""
    folder = _current_folder()
    if folder is None:
        return "cd to a folder that exists: the working folder was removed or replaced"
    if not os.access(folder, os.W_OK):
        return f"start the program in a folder that you may write to, not in {folder}"
    names_in_error = re.findall(r"[\w.-]+", outcome.failure)
    for name in names_in_error:
        # Path.is_file() raises an error if the name is too long, as a mangled C++ name may be.
        if os.path.isfile(folder / name):  # noqa: PTH113
            return f"check {folder}/{name}, which the error names"
    return _step_for_shadowing_modules(str(folder), outcome)
