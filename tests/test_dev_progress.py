"""What one reads while `./dev` works."""

import subprocess
import sys

import pytest
from accel_tests.tools import TREE, load

_RUNNING = load("running")


def test_a_silent_command_shows_that_it_works_and_its_output_only_if_it_fails(
    monkeypatch, capsys
):
    monkeypatch.setattr(_RUNNING, "BEAT", 0.2)
    code = "import time; print('hidden', flush=True); time.sleep(0.7)"
    assert _RUNNING.quietly("counting", [sys.executable, "-c", code]) == "hidden\n"
    told = capsys.readouterr().out
    assert told.startswith("     … counting: 0 s so far\n")
    assert "hidden" not in told
    with pytest.raises(
        _RUNNING.CommandFailedError, match=r"(?s)hidden.*dev: counting failed"
    ):
        _RUNNING.quietly("counting", [sys.executable, "-c", f"{code}; exit(3)"])


@pytest.mark.skipif(
    not _RUNNING.DEV_PYTHON.is_file(), reason="`./dev` has an environment with nox"
)
def test_pytests_command_line_is_short_and_one_process_names_each_test():
    session = "SimpleNamespace(name='core', run=lambda *words, **_: print(*words))"
    code = "import sys; from types import SimpleNamespace; sys.path.insert(0, 'tools'); import environments"
    code += f"; environments.pytest({session}, *sys.argv[1:], env={{}})"

    def shown(*arguments):
        command = [_RUNNING.DEV_PYTHON, "-c", code, *arguments]
        return subprocess.run(
            command, cwd=TREE, capture_output=True, text=True, check=True
        ).stdout

    assert len(shown("-n", "2", *["tests/test_dev.py"] * 100)) < 150
    assert " -v " in shown("tests/test_dev.py")
    assert "-v" not in shown("-n", "2", "tests/test_dev.py")
