"""Experiments in real child processes."""

import os
import py_compile
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from accel_tools.doctor.experiments import table, trial
from accel_tools.doctor.experiments.cases import (
    FailedProgram,
    Phase,
    find_cause,
    find_failed_programs,
)
from accel_tools.doctor.experiments.trial import (
    Outcome,
    Program,
    StartFile,
)


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Returns a program that imports `stub`, a module of the given source, in an empty folder."""

    def make(source, **variables):
        library = tmp_path / "library"
        library.mkdir()
        (library / "stub.py").write_text(source)
        folder = tmp_path / "folder"
        folder.mkdir()
        monkeypatch.chdir(folder)
        kept = {name: os.environ[name] for name in ("PATH", "HOME")}
        path = table.python_path()
        environ = {**kept, **variables, "PYTHONPATH": str(library)}
        return Program(
            ("stub",),
            environ,
            60,
            package_folders=path.folders,
            user_site=path.user_folder,
            start_files=path.start_files,
        )

    return make


def proof(program, seconds=60):
    [case] = find_failed_programs(program, trial.run(program), None)
    return find_cause(case, time.monotonic() + seconds, lambda _: None)


def test_a_program_that_works_is_no_case(program):
    working = program("")
    assert list(find_failed_programs(working, trial.run(working), None)) == []


def test_a_variable_that_no_table_knows_is_proven(program):
    source = "import os\nif os.environ.get('ZAP') == 'on': raise RuntimeError('err 22')"
    found = proof(program(source, ZAP="on", OTHER="1", MORE="2"))
    assert found.is_proven
    assert found.text == "without ZAP='on', `import stub` works"
    assert found.step == "unset ZAP"


def test_two_variables_are_proven_together(program):
    source = (
        "import os\n"
        "if 'ZAP' in os.environ or 'QUX' in os.environ: raise RuntimeError('err 22')"
    )
    found = proof(program(source, ZAP="on", QUX="1", OTHER="1"))
    assert found.is_proven
    assert found.text == "without QUX='1' and without ZAP='on', `import stub` works"
    assert found.step == "unset QUX; unset ZAP"


def test_a_file_of_the_script_that_shadows_a_module_is_to_be_renamed(program, tmp_path):
    shadowed = program("from queue import Queue")
    file = tmp_path / "folder" / "queue.py"
    file.write_text("print('mine')")
    found = proof(shadowed)
    assert found.is_proven
    assert found.text == f"without the modules in {file.parent}, `import stub` works"
    step = f"rename {file}, which Python imports instead of the installed queue"
    assert found.step == step


def test_a_file_that_runs_at_python_s_start_is_named(program, tmp_path):
    spoiled = program("import sys\nif hasattr(sys, 'spoiled'): raise OSError('no')")
    file = tmp_path / "library" / "sitecustomize.py"
    file.write_text("import sys\nsys.spoiled = True")
    start_file = StartFile(str(file), ("import sitecustomize",))
    start_files = (*spoiled.start_files, start_file)
    found = proof(replace(spoiled, start_files=start_files))
    assert found.is_proven
    assert found.text == f"without the start-up file {file}, `import stub` works"
    assert found.step == f"remove {file}, which runs when Python starts"


def test_a_start_file_that_sets_a_variable_is_named_instead_of_the_variable(
    program, tmp_path, monkeypatch
):
    """This process has run the file too, so that its children inherit the variable."""
    source = "import os\nif 'SPOILED' in os.environ: raise OSError('no')"
    spoiled = program(source, SPOILED="1")
    monkeypatch.setenv("SPOILED", "1")
    file = tmp_path / "library" / "sitecustomize.py"
    file.write_text("import os\nos.environ['SPOILED'] = '1'")
    start_file = StartFile(str(file), ("import sitecustomize",))
    found = proof(replace(spoiled, start_files=(start_file,)))
    assert found.step == f"remove {file}, which runs when Python starts"


def test_a_damaged_compiled_file_is_proven(program, tmp_path):
    spoiled = program("value = 1")
    library = tmp_path / "library"
    compiled = Path(py_compile.compile(str(library / "stub.py")))
    compiled.write_bytes(compiled.read_bytes()[:20])
    found = proof(replace(spoiled, package_folders=(str(library),)))
    assert found.is_proven
    assert found.text.startswith("without Python's compiled files in ")
    assert found.step == f"find {library} -name '*.pyc' -delete"


def test_what_a_program_printed_that_counts_too_few_devices_is_told(program):
    """Vendors' runtimes warn, and then count no device."""
    counting = program("")
    outcome = Outcome(imported=("stub",), count=0, printed="last words: driver: 507805")
    case = FailedProgram(counting, outcome, Phase.COUNT, "npu", expected=2)
    found = find_cause(case, time.monotonic() + 20, lambda _: None)
    assert found.text.startswith("The program printed its last words: driver: 507805. ")


#: A program that locks a file and keeps the lock.
LOCK = """
import fcntl, time
handle = open({file!r}, 'a')
fcntl.lockf(handle, fcntl.LOCK_EX)
print('locked', flush=True)
time.sleep(600)
"""
#: A program that fails by the content of a file, unless the file does not exist.
READS_FILE = """
import os
if os.path.exists({file!r}):
    if 'new' not in open({file!r}).read(): raise ValueError('err 11')
"""


def test_a_file_that_the_program_opens_is_proven(program, tmp_path):
    file = tmp_path / "settings.conf"
    file.write_text("old")
    found = proof(program(READS_FILE.format(file=str(file)), OTHER="1"))
    assert found.is_proven
    assert found.text == f"without the file {file}, `import stub` works"
    step = f"correct {file}, or rename it: the program works without it"
    assert found.step == step


def test_a_folder_that_the_program_lists_is_proven(program, tmp_path):
    folder = tmp_path / "plugins.d"
    folder.mkdir()
    (folder / "old.json").write_text("{}")
    source = f"""
import os
try:
    names = os.listdir({str(folder)!r})
except FileNotFoundError:
    names = []
if names: raise ValueError('err 12')
"""
    found = proof(program(source))
    assert found.text == f"without the folder {folder}, `import stub` works"


def test_a_file_that_the_program_would_create_is_proven(program, tmp_path):
    """A lock file of another user, in a folder where the system protects such files, for example."""
    file = tmp_path / "device.lock"
    file.write_text("4711")
    source = f"""
import os
descriptor = os.open({str(file)!r}, os.O_RDWR | os.O_CREAT)
if os.read(descriptor, 9): raise OSError('lock: operation not permitted (800)')
"""
    found = proof(program(source))
    assert found.text == f"without the file {file}, `import stub` works"


def test_a_process_that_locks_a_file_of_the_program_is_named(program, tmp_path):
    file = tmp_path / "device.lock"
    file.touch()
    source = f"""
import fcntl
handle = open({str(file)!r}, 'a')
try:
    fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    raise RuntimeError('err 14')
raise RuntimeError('err 15')
"""
    lock = [sys.executable, "-c", LOCK.format(file=str(file))]
    with subprocess.Popen(lock, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        found = proof(program(source))
        process.kill()
    assert not found.is_proven
    assert f"Process {process.pid} has a lock on {file}" in found.text


def test_a_file_that_the_program_needs_is_not_the_cause(program, tmp_path):
    file = tmp_path / "needed.conf"
    file.write_text("new")
    source = f"open({str(file)!r}).close()\nraise ValueError('err 13')"
    found = proof(program(source))
    assert not found.is_proven


def test_a_package_that_is_only_used_if_it_is_installed_is_proven(program, tmp_path):
    source = "try:\n    import extra\nexcept ImportError:\n    pass"
    failing = program(source)
    library = tmp_path / "library"
    (library / "extra.py").write_text("import os\nos.no_such_function()")
    found = proof(replace(failing, package_folders=(str(library),)))
    assert found.is_proven
    assert found.text == "without the package extra, `import stub` works"
    file = library / "extra.py"
    assert found.step == f"if the program does not need extra, remove {file}"


def test_an_optional_package_that_crashes_is_proven(program, tmp_path):
    source = "try:\n    import extra\nexcept ImportError:\n    pass"
    failing = program(source)
    library = tmp_path / "library"
    (library / "extra.py").write_text("import os\nos.abort()")
    found = proof(replace(failing, package_folders=(str(library),)))
    assert found.text == "without the package extra, `import stub` works"


def test_a_variable_is_the_cause_rather_than_the_package_that_reads_it(
    program, tmp_path
):
    source = "try:\n    import extra\nexcept ImportError:\n    pass"
    failing = program(source, ZAP="on", OTHER="1")
    library = tmp_path / "library"
    extra = "import os\nif 'ZAP' in os.environ: raise ValueError('err 3')"
    (library / "extra.py").write_text(extra)
    found = proof(replace(failing, package_folders=(str(library),)))
    assert found.text == "without ZAP='on', `import stub` works"


def test_a_file_in_the_traceback_that_someone_has_changed_is_named(program, tmp_path):
    """Nothing is proven, as the installed content is not there."""
    failing = program("import extra, unknown_file")
    library = tmp_path / "library"
    (library / "extra.py").write_text("import unknown_file")
    (library / "unknown_file.py").write_text("raise ValueError('err 4')")
    metadata = library / "extra-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: extra\nVersion: 1.0\n"
    )
    (metadata / "RECORD").write_text("extra.py,sha256=AAAA,20\n")
    damaged = library / "broken-1.0.dist-info"
    damaged.mkdir()
    (damaged / "RECORD").write_bytes(b"\xff\xfe")  # has no effect
    sys.path.insert(0, str(library))
    try:
        found = proof(replace(failing, package_folders=(str(library),)))
    finally:
        sys.path.remove(str(library))
    assert not found.is_proven
    changed = f"{library}/extra.py does not have the content that extra 1.0 installed"
    assert changed in found.text
    unknown = f"{library}/unknown_file.py belongs to no installed distribution"
    assert unknown in found.text


def test_a_start_file_of_no_distribution_is_tried_before_the_variables(program):
    [file] = [
        each
        for each in table.experiments(
            replace(
                program(""), start_files=(StartFile("/x/sitecustomize.py", ("1",)),)
            )
        )
        if "sitecustomize" in each.name
    ]
    assert file.is_likely(Outcome(error="TypeError"))


def test_a_current_folder_that_was_removed_is_named(program, tmp_path):
    lost = program("import os\nos.getcwd()")
    (tmp_path / "folder").rmdir()
    found = proof(lost)
    assert found.is_proven
    assert found.text == "in an existing working folder, `import stub` works"
    assert found.step.startswith("cd to a folder that exists")


def test_a_low_soft_limit_is_proven_with_its_command(program):
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limited = program("files = [open('/dev/null') for _ in range(100)]")
    resource.setrlimit(resource.RLIMIT_NOFILE, (60, hard))
    try:
        found = proof(limited)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found.is_proven
    assert found.text == (
        "without the limit on open files (`ulimit -n` is 60), `import stub` works"
    )
    assert found.step.startswith(f"run `ulimit -n {hard}` where the limit is set")


def test_a_folder_that_is_not_there_is_named(program):
    source = "import os\nopen(os.environ['TMPDIR'] + '/lock', 'w')"
    found = proof(program(source, TMPDIR="/nonexistent"))
    assert found.is_proven
    assert found.text.startswith("with an empty folder instead of TMPDIR=")
    assert found.step == "set TMPDIR to an existing folder that you may write to"


def test_a_file_of_the_current_folder_that_the_error_names_is_named(program, tmp_path):
    source = "import os\nif os.path.exists('a.ini'): raise ValueError('a.ini: line 3')"
    spoiled = program(source)
    (tmp_path / "folder" / "a.ini").write_text("?")
    found = proof(spoiled)
    folder = tmp_path / "folder"
    assert found.is_proven
    instead = f"in an empty working folder instead of {folder}, "
    assert found.text.startswith(instead)
    assert found.step == f"check {folder}/a.ini, which the error names"


def test_a_name_in_the_error_that_is_too_long_for_a_file_is_skipped(program):
    source = "import os\nif 'folder' in os.getcwd(): raise ValueError('_Z' + 300 * 'x')"
    found = proof(program(source))
    assert found.is_proven
    assert found.text.startswith("in an empty working folder instead of ")


def test_a_death_is_a_failure_like_any_other(program):
    source = "import os\nif 'ZAP' in os.environ: os.kill(os.getpid(), 11)"
    found = proof(program(source, ZAP="1", OTHER="1"))
    assert found.is_proven
    assert found.text == "without ZAP='1', `import stub` works"


def test_a_cause_outside_of_what_can_be_changed_is_not_invented(program):
    found = proof(program("raise RuntimeError('firmware is too old')", OTHER="1"))
    assert found.text.startswith("Changes without effect (")
    assert found.step == ""


#: Loads the extensions that announce themselves, as torch does at its import.
LOADS_EXTENSIONS = """
import os
if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1":
    try:
        import torch_acme
    except Exception as error:
        raise RuntimeError("Failed to load the backend extension: acme") from error
"""


@pytest.fixture
def with_extension(program, tmp_path, monkeypatch):
    """Returns the program that imports a stand-in for torch with an extension of this source."""

    def make(source):
        importing = program(LOADS_EXTENSIONS)
        library = tmp_path / "library"
        (library / "torch_acme.py").write_text(source)
        metadata = library / "torch_acme-1.2.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: torch-acme\nVersion: 1.2\n"
        )
        (metadata / "entry_points.txt").write_text(
            "[torch.backends]\nacme = torch_acme:autoload\n"
        )
        monkeypatch.syspath_prepend(str(library))
        return importing

    return make


def test_of_an_extension_that_fails_by_itself_the_package_is_named(with_extension):
    found = proof(with_extension("raise RuntimeError('firmware is too old')"))
    assert found.is_proven
    assert found.text == (
        "torch_acme:autoload of torch-acme 1.2, which torch's autoload calls, "
        "fails even without the autoload: RuntimeError: firmware is too old"
    )
    assert found.step == (
        "for a program that does not need torch-acme: export TORCH_DEVICE_BACKEND_AUTOLOAD=0, "
        "or pip uninstall torch-acme"
    )


#: Reads the entry points of all distributions, as torch's autoload does.
READS_ENTRY_POINTS = """
import os
from importlib.metadata import entry_points
if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1":
    entry_points(group="torch.backends")
"""


def test_entry_points_of_any_distribution_that_cannot_be_read_are_named(
    program, tmp_path, monkeypatch
):
    importing = program(READS_ENTRY_POINTS)
    metadata = tmp_path / "library" / "labutils-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: labutils\nVersion: 1.2\n"
    )
    (metadata / "entry_points.txt").write_bytes("[lab]\nmaß = lab".encode("latin-1"))
    monkeypatch.syspath_prepend(str(tmp_path / "library"))
    found = proof(importing)
    assert found.is_proven
    assert found.step == (
        "reinstall labutils: its file entry_points.txt cannot be read"
    )


def test_a_variable_of_the_library_in_the_error_is_tried_first(program):
    """libgomp reads OMP_STACKSIZE, and its error does not name the variable."""
    experiments = table.experiments(program("", OMP_STACKSIZE="900G", OTHER="1"))
    outcome = Outcome(error="libgomp: Thread creation failed")
    likely = [str(one) for one in experiments if one.is_likely(outcome)]
    assert "without OMP_STACKSIZE='900G'" in likely
    assert "without OTHER='1'" not in likely


def test_an_extension_that_works_with_another_change_does_not_fail_by_itself(
    with_extension,
):
    source = "import os\nif os.environ.get('ZAP') == 'on': raise RuntimeError('no')\ndef autoload(): pass"
    failing = with_extension(source)
    found = proof(replace(failing, environ={**failing.environ, "ZAP": "on"}))
    assert found.is_proven
    assert found.text == "without ZAP='on', `import stub` works"
    assert found.step == "unset ZAP"


def test_an_extension_whose_function_fails_is_named_by_it(with_extension):
    failing = with_extension("def autoload(): raise OSError('libfast.so.3')")
    source = Path(failing.environ["PYTHONPATH"], "stub.py")
    loading = LOADS_EXTENSIONS.replace(
        "torch_acme", "torch_acme; torch_acme.autoload()"
    )
    source.write_text(loading)
    found = proof(failing)
    assert found.is_proven
    assert found.text.startswith("torch_acme:autoload of torch-acme 1.2, ")


def test_of_an_extension_that_fails_only_within_torchs_import_autoload_is_named(
    with_extension,
):
    source = (
        "import sys\nsys.modules['stub'].__spec__._initializing and 1 / 0\n"
        "def autoload(): pass"
    )
    found = proof(with_extension(source))
    assert found.is_proven
    assert found.text.startswith("without torch's autoload of ")
    assert "torch-acme" in found.text


def test_a_limit_of_memory_is_proven_with_its_command(program):
    """Case 31: with `ulimit -v` the advice was to reinstall torch."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_AS)
    limited = program("taken = bytearray(3 << 30)")
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, before[1]))
    try:
        found = proof(limited)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert found.is_proven
    assert found.text.startswith("without the limit on virtual memory (")
    assert found.step.startswith("run `ulimit -v ")


def test_the_experiments_end_at_their_deadline(program):
    """The program takes longer with each change than the time that is left."""
    slow = program(
        "import os, time\nif 'ZAP' in os.environ: 1 / 0\ntime.sleep(60)", ZAP="on"
    )
    outcome = trial.run(slow)
    [case] = find_failed_programs(slow, outcome, None)
    start = time.monotonic()
    found = find_cause(case, start + 6, lambda _: None)
    assert time.monotonic() - start < 8
    assert not found.is_proven


def test_nothing_outside_of_the_children_changes(program):
    spoiled = program("import os\nif 'ZAP' in os.environ: raise OSError('no')", ZAP="1")
    before = dict(os.environ), Path.cwd(), list(Path.cwd().iterdir())
    proof(spoiled)
    assert (dict(os.environ), Path.cwd(), list(Path.cwd().iterdir())) == before


def test_a_value_that_may_be_secret_is_not_shown(program):
    source = "import os\nif 'ZAP_TOKEN' in os.environ: raise OSError('no')"
    found = proof(program(source, ZAP_TOKEN="hunter2"))
    assert found.is_proven
    assert found.text == "without ZAP_TOKEN=…, `import stub` works"
