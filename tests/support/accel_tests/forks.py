"""Forks of a process that has imported what takes seconds: each starts in milliseconds.

A test function with `@forked(device)` runs in one. It asserts there as any other test, and may choose,
activate and break what it likes, for the process ends with it.
"""

import json
import os
import signal
import sys
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from select import select
from subprocess import PIPE

import pytest

from accel_tests.children import Ended, clean_environment, finish, start

_SUPPORT = str(Path(__file__).parents[1])

#: Forks the processes that a line of its stdin asks for, and writes their numbers, and how they ended. Each
#: has a session, an environment, a folder and output of its own.
_PARENT = """
import json, os, sys
exec(sys.argv[1])
for line in sys.stdin:
    asked, pids = json.loads(line), []
    for environ, out, err in asked["each"]:
        if not (pid := os.fork()):
            break
        pids.append(pid)
    else:
        print(json.dumps(pids), flush=True)
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]), flush=True)
        continue
    os.setsid()
    for number, path in enumerate((os.devnull, out, err)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(asked["folder"])
    sys.argv[:] = ["-c"]
    paths = filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:0] = [path for path in paths if path not in sys.path]
    break
else:
    os._exit(0)
exec(compile(asked["code"], "<fork>", "exec"))
"""
#: Calls a test function of a file. The values at the time of an error are shown with it.
_CALL = """
import runpy, sys, traceback
from pathlib import Path
support, file, name, values = {call!r}
sys.path.insert(0, os.getcwd())
sys.path += [support, os.path.dirname(file)]
try:
    runpy.run_path(file)[name](**{{k: Path(v) if k == "tmp_path" else v for k, v in values.items()}})
except Exception as error:
    frames = error.__traceback__
    while frames.tb_next and frames.tb_frame.f_code.co_filename != file:
        frames = frames.tb_next
    shown = traceback.TracebackException(type(error), error, frames, capture_locals=True)
    print("".join(shown.format()), file=sys.stderr)
    sys.exit(1)
"""


class Forks:
    """A process that has run `prelude` in an environment, and forks others."""

    def __init__(self, prelude, environ, folder):
        self.folder, self.count = folder, 0
        self.pids = []
        self.process = start(["-c", _PARENT, prelude], environ, stdin=PIPE)

    def __call__(self, code, each, *, folder=None, timeout=240):
        """Run `code` in a process for each environment, to its end; how they ended, in that order."""
        asked = []
        for environ in each:
            self.count += 1
            asked.append(
                (
                    environ,
                    *(
                        str(self.folder / f"{self.count}.{name}")
                        for name in ("out", "err")
                    ),
                )
            )
        order = {"code": code, "each": asked, "folder": str(folder or self.folder)}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        self.pids = self._line(600)  # the first time it is still importing
        statuses = self._line(timeout)
        self.kill()
        return [
            Ended(status, *(Path(path).read_text("utf-8", "replace") for path in paths))
            for status, (_, *paths) in zip(statuses, asked, strict=True)
        ]

    def _line(self, timeout):
        """Read a line of numbers; processes that are too slow are killed, which their statuses show."""
        if not select([self.process.stdout], [], [], timeout)[0]:
            self.kill()
        return json.loads(self.process.stdout.readline())

    def kill(self):
        """End the processes, and what they have started."""
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        self.pids = []


@contextmanager
def opened(prelude, environ, folder):
    """Give a process that forks, and end it."""
    if sys.platform == "win32":
        pytest.skip("processes are forked")
    forks = Forks(prelude, environ, folder)
    try:
        yield forks
    finally:
        forks.kill()
        finish(forks.process, 60)


def forked(device="", **variables):
    """Run the test in a fork that has the device; without one its argument `device` names it.

    The fixture `on_<device>` gives the environment, to which `variables` are added.
    """

    def mark(function):
        vars(function)["forked"] = device, variables
        return function

    return mark


@pytest.fixture(scope="session")
def imports():
    """What a process has imported before it forks; folders override this."""
    return "import pytest, torch"


@pytest.fixture(scope="session")
def on_torch():
    """The environment of forks that have torch, and no device."""
    return clean_environment()


@pytest.fixture(scope="session")
def parents(tmp_path_factory):
    """`parents(imports, device, environ)`: the one process that forks for this device."""
    with ExitStack() as stack:

        @cache
        def parent(imports, device, environ):
            return stack.enter_context(
                opened(imports, dict(environ), tmp_path_factory.mktemp(device))
            )

        yield lambda imports, device, environ: parent(
            imports, device, frozenset(environ.items())
        )


@pytest.fixture(autouse=True)
def _forked(request):
    """Tests with `@forked` run in a fork; the environment may still be changed by their other fixtures."""
    if not hasattr(request.node, "obj") or not hasattr(request.function, "forked"):
        return
    test = request.function
    device, variables = test.forked

    def call(**values):
        name = device or values["device"]
        environ = request.getfixturevalue(f"on_{name}")
        parent = request.getfixturevalue("parents")(
            request.getfixturevalue("imports"), name, environ
        )
        folder = request.getfixturevalue("tmp_path")
        said = {
            key: str(value) if isinstance(value, Path) else value
            for key, value in values.items()
        }
        code = _CALL.format(call=(_SUPPORT, str(request.path), test.__name__, said))
        (ended,) = parent(code, [{**environ, **variables}], folder=folder)
        assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"

    request.node.obj = call
