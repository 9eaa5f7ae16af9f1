"""The faults, as source that runs in the middle of a plugin, and the places where it can stand."""

import enum
from dataclasses import dataclass

#: Seconds that a probe has where a fault takes longer than that, and that a fault sleeps which then goes on:
#: more than twice as many, as a command gives a step of its choice two deadlines.
DEADLINE = 2.0
SLEEP = 4.5


class Kind(enum.Enum):
    """What becomes of the code that meets a fault."""

    RAISES = "raises"
    #: It is told to stop by the user, not by the plugin: nobody may swallow that.
    INTERRUPTS = "interrupts"
    DIES = "dies"
    HANGS = "hangs"
    #: It goes on after `SLEEP` seconds.
    SLEEPS = "sleeps"
    #: It goes on, and something of the process is another.
    DISTURBS = "disturbs"


@dataclass(frozen=True)
class Fault:
    """One way to misbehave."""

    #: As the page calls it.
    name: str
    kind: Kind
    #: Statements.
    source: str
    #: What a verdict must say of it in the process that met it, and of the end of a child that did.
    said: str = ""
    ending: str = ""
    #: The exit status of a process that meets it, as `subprocess` gives it.
    returncode: int = 0
    #: What it changes of the process that meets it, in the words of `modes`.
    changes: frozenset[str] = frozenset()

    @property
    def works(self):
        """Whether the backend is usable all the same, where no deadline ends it."""
        return self.kind in (Kind.DISTURBS, Kind.SLEEPS)


def _raises(name, source, said):
    return Fault(name, Kind.RAISES, source, said)


def _dies(name, source, ending, returncode):
    return Fault(name, Kind.DIES, source, ending=ending, returncode=returncode)


def _disturbs(name, source, *changes):
    return Fault(name, Kind.DISTURBS, source, changes=frozenset(changes))


#: What is asked of a vendor's package that holds it to nobody: kept alive for as long as the process lives.
_KEEP = "import builtins; builtins._faulty_keeps = "

FAULTS = (
    _raises(
        "raises ImportError",
        "raise ImportError('libfaulty.so: no such file')",
        "libfaulty.so",
    ),
    _raises(
        "raises OSError",
        "raise OSError(5, 'libfaulty is wedged')",
        "libfaulty is wedged",
    ),
    _raises(
        "raises RuntimeError", "raise RuntimeError('driver too old')", "driver too old"
    ),
    _raises("raises MemoryError", "bytearray(1 << 60)", "MemoryError"),
    _raises("recurses without end", "def again(): again()\nagain()", "RecursionError"),
    _raises(
        "raises StopIteration", "raise StopIteration('out of devices')", "StopIteration"
    ),
    _raises(
        "panics in Rust",
        "Panic = type('PanicException', (BaseException,), {'__module__': 'pyo3_runtime'})\n"
        "raise Panic('index out of bounds')",
        "PanicException: index out of bounds",
    ),
    _raises(
        "raises what has no text",
        "class Mute(Exception):\n    def __str__(self): raise TypeError('no')\nraise Mute",
        "Mute: (the error's message cannot be read)",
    ),
    _raises(
        "sys.exit(3)",
        "import sys; sys.exit(3)",
        "the code tried to exit the process with 3",
    ),
    Fault(
        "raises KeyboardInterrupt",
        Kind.INTERRUPTS,
        "raise KeyboardInterrupt",
        ending="SIGINT",
    ),
    _dies("os._exit(0)", "import os; os._exit(0)", "exited with status 0", 0),
    _dies("os._exit(3)", "import os; os._exit(3)", "exited with status 3", 3),
    _dies(
        "SIGSEGV",
        "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        "died of SIGSEGV",
        -11,
    ),
    _dies(
        "reads address 0", "import ctypes; ctypes.string_at(0)", "died of SIGSEGV", -11
    ),
    _dies("aborts", "import os; os.abort()", "died of SIGABRT", -6),
    _dies(
        "is killed",  # as by the kernel, out of memory
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "died of SIGKILL",
        -9,
    ),
    Fault("hangs", Kind.HANGS, "import time\nwhile True: time.sleep(60)"),
    Fault(
        "hangs in C with the GIL held",
        Kind.HANGS,
        "import ctypes; ctypes.PyDLL(None).sleep(600)",
    ),
    Fault("sleeps past the deadline", Kind.SLEEPS, f"import time; time.sleep({SLEEP})"),
    _disturbs(
        "floods stdout and stderr",
        "import os\nline = b'spam and eggs\\n' * 4096\n"
        "for _ in range(350): os.write(1, line), os.write(2, line)",
        "output",
    ),
    _disturbs("prints", "print('{\"spam\": 1}', flush=True)"),
    _disturbs("reads stdin", "import sys; sys.stdin.readline()", "stdin"),
    _disturbs(
        "forks a child that lives on",
        "import os, sys, time\n"
        "if os.fork() == 0:\n"
        "    for number in range(3): os.close(number)\n"  # it holds nobody's pipe open
        "    time.sleep(60)\n"
        "    os._exit(0)",
        "children",
    ),
    _disturbs(
        "sets variables",
        "import os; os.environ.update(PATH='/nowhere', FAULTY='1')",
        "environment",
    ),
    _disturbs("clears the environment", "import os; os.environ.clear()", "environment"),
    _disturbs(
        "silences warnings",
        "import warnings; warnings.simplefilter('ignore')",
        "warnings",
    ),
    _disturbs(
        "starts a thread that is no daemon",
        "import threading, time; threading.Thread(target=time.sleep, args=(60,)).start()",
        "threads",
    ),
    _disturbs(
        "maps 2 GiB",  # untouched: nobody has to find them
        f"import mmap; {_KEEP}mmap.mmap(-1, 2 << 30)",
        "memory",
    ),
    _disturbs(
        "replaces torch.cuda",
        "import sys, types\nif 'torch' in sys.modules: sys.modules['torch'].cuda = types.ModuleType('cuda')",
        "torch.cuda",
    ),
)


class Place(enum.Enum):
    """Where in a plugin the fault stands."""

    IMPORT = "plugin import"
    BACKENDS = "accel_backends"
    PROBE = "accel_probe"
    VENDOR = "vendor module"
    CREATE = "accel_create"
    CONSTRUCTION = "construction"
    COUNT = "device_count"
    EXPLAIN = "accel_explain"
    OP_BUILDERS = "accel_op_builders"
    KERNEL = "first kernel"
    CHECKS = "accel_checks"

    @property
    def after_choice(self):
        """Whether nobody who merely chooses comes here."""
        return self in (Place.OP_BUILDERS, Place.KERNEL, Place.CHECKS)

    @property
    def loads(self):
        """Whether it is met while plugins are discovered."""
        return self in (Place.IMPORT, Place.BACKENDS)

    @property
    def of_vendor(self):
        """Whether the vendor's package is in charge, or its accelerator: what it sets it may need."""
        return self in (Place.VENDOR, Place.CREATE, Place.CONSTRUCTION, Place.COUNT)
