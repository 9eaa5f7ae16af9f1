"""Accelerators that a child of test_verify.py installs.

The members of `Wild` hang, end the process and lie. Counting the devices of `Starting` starts its runtime:
that sets a variable, and refuses processes that are forked later.
"""

import ctypes
import os
import signal
import time
from pathlib import Path

import torch

from accel_core.interface.cpu import CPUAccelerator


class Wild(CPUAccelerator):
    def __init__(self, backend):
        super().__init__(backend)
        torch.use_deterministic_algorithms(True)

    def device_uuid(self, device_index=None):
        os._exit(7)

    def get_compile_backend(self):
        return ctypes.string_at(0)

    def pin_memory_alignment(self):
        if "SIM_STOP" in os.environ:
            os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(600)

    def export_envs(self):
        return ["A"]

    def random(self):
        return torch.get_device_module("cpu").Graph()


def start():
    here = str(os.getpid())
    if os.environ.setdefault("SIM_RUNTIME", here) != here:
        raise RuntimeError("cannot re-initialise the runtime in a forked subprocess")


class Starting(CPUAccelerator):
    def device_count(self):
        start()
        return super().device_count()

    def device(self, *arguments):
        start()
        return super().device(*arguments)


class Remote(CPUAccelerator):
    """A device that is reached until its server is gone, which a file says.

    The file of the variable SIM_SERVER is the server. A check that asks for the UUID takes it away; one
    that registers host memory loses its own connection alone.
    """

    def device_uuid(self, device_index=None):
        Path(os.environ["SIM_SERVER"]).unlink()
        return self.device()

    def pin_memory_alignment(self):
        raise ConnectionResetError("the connection was reset")

    def device(self, *arguments):
        if not Path(os.environ["SIM_SERVER"]).exists():
            raise ConnectionRefusedError("no server at port 9720")
        return super().device(*arguments)
