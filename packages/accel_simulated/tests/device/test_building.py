"""Building the simulated device: once for each device type, with a clear error if it cannot be built."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from accel_tests.children import clean_environment, executable, run_python
from filelock import FileLock

from accel_simulated import (
    BuildError,
    CannotBuildError,
    build,
    building,
    prebuilt,
    provider,
)
from accel_simulated import (
    cache as compiling,
)
from accel_simulated.building import _library_key, build_and_export, build_into, find

FAKE_COMPILER = """
import pathlib, sys, time
time.sleep(0.3)
with open({log!r}, "a") as log:
    log.write("built\\n")
pathlib.Path(sys.argv[sys.argv.index("-o") + 1]).write_text("a library")
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "accel-core" / "simulated"


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """A compiler that writes down each call; gives its log."""
    log = tmp_path / "log"
    script = executable(
        tmp_path / "c++", FAKE_COMPILER.format(log=str(log)), by=sys.executable
    )
    monkeypatch.setenv("CXX", str(script))
    return log


def test_a_missing_compiler_is_named(cache, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(
        CannotBuildError,
        match=r"needs a C\+\+20 compiler: no-such-compiler is not on PATH",
    ):
        build("HPU")


def test_a_built_library_is_used_for_its_device_type_and_torch(
    cache, compiler, monkeypatch
):
    """Also from a parent, which names it in a variable; and when the compiler is gone."""
    monkeypatch.setenv("ACCEL_SIMULATE_LIBRARY", "")
    library = build_and_export("HPU")
    assert library.parents[1] == cache
    assert os.environ["ACCEL_SIMULATE_LIBRARY"] == str(library)
    assert library == build("HPU") != build("XPU")
    assert compiler.read_text() == "built\n" * 2
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert build_and_export("HPU") == build("HPU") == find("HPU") == library
    assert build_and_export("XPU") == build("XPU")
    monkeypatch.setenv("ACCEL_SIMULATE_LIBRARY", str(library))
    monkeypatch.setattr(building, "_torch_version", lambda: "9.0")
    for ask in (build, find, build_and_export):
        with pytest.raises(CannotBuildError, match="no-such-compiler is not on PATH"):
            ask("HPU")


def test_a_cache_that_may_not_be_opened_is_no_crash(cache, monkeypatch):
    def refuse(_path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", refuse)  # Root may open every folder.
    assert compiling.find(prebuilt.LibraryKey("x", "any", "0" * 12)) is None


def test_a_lock_that_another_process_never_releases_is_named(
    cache, compiler, monkeypatch
):
    monkeypatch.setattr(compiling, "_MAX_WAIT", 0.1)
    key = prebuilt.LibraryKey("x", "any", "0" * 12)
    cache.mkdir(parents=True)
    with (
        FileLock(cache / f"{key.folder_name}.lock"),
        pytest.raises(BuildError, match=r"waited 0\.1 s for another process .*\.lock"),
    ):
        compiling.find_or_compile(
            key, [str(compiler)], description="the device", next_step="none"
        )


def test_processes_that_need_a_library_together_compile_it_once(cache, compiler):
    program = "from accel_simulated import build; print(build('HPU'))"
    environ = clean_environment(
        XDG_CACHE_HOME=os.environ["XDG_CACHE_HOME"], CXX=os.environ["CXX"]
    )
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    children = [
        subprocess.Popen([sys.executable, "-c", program], env=environ, **piped)
        for _ in range(3)
    ]
    ended = [child.communicate(timeout=120) for child in children]
    [library] = {stdout.strip() for stdout, _ in ended}
    assert Path(library).parents[1] == cache
    assert compiler.read_text() == "built\n"


def test_files_of_a_killed_process_do_not_stop_the_next(cache, compiler):
    cache.mkdir(parents=True)
    key = _library_key("HPU")
    (cache / f"{key.folder_name}.lock").touch()
    (cache / key.folder_name).mkdir()  # without a manifest: it was never complete
    (cache / key.folder_name / "simdev.so").write_text("half a library")
    assert build("HPU").read_text() == "a library"


def test_a_damaged_library_in_the_cache_is_compiled_again(cache, compiler):
    library = build("HPU")
    library.write_text("another")
    assert build("HPU") == library
    assert library.read_text() == "a library"
    assert compiler.read_text() == "built\n" * 2


def test_a_cache_that_cannot_be_written_is_named_with_the_next_step(
    compiler, tmp_path, monkeypatch
):
    (tmp_path / "file").touch()
    monkeypatch.setenv("ACCEL_CACHE", str(tmp_path / "file"))
    with pytest.raises(
        BuildError, match=r"file/simulated cannot be written: .* Set ACCEL_CACHE to a"
    ):
        build("HPU")


def test_a_cache_that_is_full_is_named_with_the_next_step(cache, compiler):
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(
            BuildError, match=r"cannot be written: .*Set ACCEL_CACHE to"
        ):
            build("HPU")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_torch_that_is_too_old_is_rejected_before_compiling(
    cache, compiler, monkeypatch
):
    monkeypatch.setattr(building, "_torch_version", lambda: "2.11.0+cpu")
    with pytest.raises(
        CannotBuildError,
        match=r"torch 2\.12 or newer, but torch 2\.11\.0\+cpu is installed",
    ):
        build("HPU")
    assert not compiler.exists()


def test_a_compiler_that_is_not_a_valid_command_line_is_rejected(monkeypatch):
    monkeypatch.setenv("CXX", 'g++ "')
    with pytest.raises(
        CannotBuildError,
        match=r"CXX='g\+\+ \"' is not a valid command line: No closing",
    ):
        building.compiler()


def test_a_compiler_with_arguments(compiler, monkeypatch, tmp_path):
    script = os.environ["CXX"]
    monkeypatch.setenv("CXX", f"{script} -m64")
    assert building.compiler() == [script, "-m64"]
    monkeypatch.setenv("CXX", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert building.compiler() == [script]  # which is called c++
    Path(script).unlink()
    with pytest.raises(
        CannotBuildError,
        match=r"none of g\+\+, c\+\+, clang\+\+ is on PATH\. Install one",
    ):
        building.compiler()


def test_for_a_missing_python_header_the_next_step_is_its_package(
    cache, tmp_path, monkeypatch
):
    script = executable(
        tmp_path / "bad-c++", "echo 'error: Python.h: not found' >&2; exit 1"
    )
    monkeypatch.setenv("CXX", str(script))
    with pytest.raises(RuntimeError, match="Next step: install Python's headers"):
        build("HPU")


def test_a_failing_compiler_is_quoted(cache, tmp_path, monkeypatch):
    script = executable(tmp_path / "bad-c++", "echo 'error: no such thing' >&2; exit 1")
    monkeypatch.setenv("CXX", str(script))
    with pytest.raises(RuntimeError, match="error: no such thing") as caught:
        build("HPU")
    log = cache.glob("simdev_hpu-*.log")
    assert "-DSIM=HPU" in next(log).read_text()
    assert "Next step: set CXX to another compiler." in str(caught.value)
    monkeypatch.setattr(building, "TESTED", (2, 99))
    with pytest.raises(
        RuntimeError, match=r"Next step: install torch 2\.13, with which"
    ):
        build("HPU")
    assert not list(cache.glob("simdev_hpu-*/"))


def test_a_prebuilt_library_is_used_without_a_compiler(
    cache, compiler, tmp_path, monkeypatch
):
    folder = tmp_path / "ahead"
    made = build_into(folder, "HPU")
    assert compiler.read_text() == "built\n"
    assert [path.name for path in folder.iterdir()] == [
        made.parent.name
    ]  # nothing of the writing is left
    assert made.parent.stat().st_mode & 0o777 == 0o755  # another user may run it

    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("ACCEL_CACHE", str(tmp_path / "empty"))
    monkeypatch.setenv("ACCEL_SIMULATE_LIBRARY", str(folder))
    assert build("HPU") == find("HPU") == build_and_export("HPU") == made
    assert os.environ["ACCEL_SIMULATE_LIBRARY"] == str(folder)
    assert provider.environment("hpu")["ACCEL_SIMULATE_LIBRARY"] == str(folder)
    made.parent.rename(folder / "for-another-torch")
    for kind in ("HPU", "XPU"):
        with pytest.raises(
            CannotBuildError,
            match=rf"compiler.* has no library for {kind}, torch .* folder would be /",
        ):
            build(kind)
    assert not (tmp_path / "empty").exists()

    monkeypatch.delenv("ACCEL_SIMULATE_LIBRARY")
    monkeypatch.setattr(prebuilt, "_PACKAGE_FOLDER", folder)
    (folder / "for-another-torch").rename(made.parent)
    assert build("HPU") == made


def test_a_damaged_prebuilt_library_is_rejected(cache, compiler, tmp_path, monkeypatch):
    monkeypatch.setenv("ACCEL_SIMULATE_LIBRARY", str(tmp_path / "ahead"))
    made = build_into(tmp_path / "ahead", "HPU")
    for damage in (
        lambda: made.write_text("another"),
        lambda: made.with_name("manifest.json").write_text("{}"),
        made.unlink,
    ):
        damage()
        with pytest.raises(
            BuildError,
            match=r"is damaged, and was not loaded: .* again on a machine with a comp",
        ):
            build("HPU")
        assert build_into(tmp_path / "ahead", "HPU") == made  # as the error says
        assert build("HPU") == made


def test_a_folder_for_prebuilt_libraries_that_cannot_be_written_is_named(
    cache, compiler, tmp_path
):
    (tmp_path / "file").touch()
    with pytest.raises(BuildError, match=r"file cannot be written: .* with --output"):
        build_into(tmp_path / "file", "HPU")


RUNS = """
import json, os, torch
print(json.dumps([torch.ones(2, device="acme:1").sum().item(), os.environ["ACCEL_SIMULATE_LIBRARY"]]))
"""


@pytest.mark.nightly(reason="compiles a device, for an image without a compiler")
def test_an_image_without_a_compiler(tmp_path):
    """No compiler, no home, nothing in the cache: what `accel simulate --build --output FOLDER` wrote."""
    try:
        made = dict(provider.build(["acme"], tmp_path / "ahead"))["acme"]
    except CannotBuildError as error:
        pytest.skip(str(error))
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "python").symlink_to(sys.executable)
    variables = clean_environment() | {
        "ACCEL_SIMULATE_LIBRARY": str(tmp_path / "ahead")
    }
    variables |= {
        "PATH": str(tools),
        "HOME": str(tmp_path / "home"),
        "ACCEL_CACHE": str(tmp_path / "cache"),
    }
    variables.pop("CXX", None)
    report = tmp_path / "report.json"
    words = [
        "-m",
        "accel_core",
        "simulate",
        "--report",
        str(report),
        "acme:2",
        "--",
        "python",
        "-c",
        RUNS,
    ]
    ended = run_python(words, variables).succeeded()
    assert json.loads(report.read_text())["notes"] == []
    assert json.loads(ended.stdout) == [2.0, str(made.parents[1])]

    made.write_text(
        "what was built for another machine"
    )  # and so its digest is as it was noted
    prebuilt.copy_library(made, _library_key("PrivateUse1"), made.parents[1])
    refused = run_python(["-c", "import torch"], variables | {"ACCEL_SIMULATE": "acme"})
    assert (
        "BuildError: the simulated device's library cannot be loaded: "
        in refused.stderr
    )
    assert "accel simulate --build acme --output FOLDER" in refused.stderr
    assert not (tmp_path / "cache").exists()
