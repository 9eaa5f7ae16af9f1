"""Record the vendor-specific places in one process of a recorded run, starting when Python starts."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import sys
from types import CodeType, ModuleType
from typing import Any

from accel_simulated import imports
from accel_simulated.detector import (
    RECORD_FOLDER_VARIABLE,
    attribution,
    environment,
    names,
)
from accel_simulated.detector.log import Log

__all__ = ["begin"]


def begin(simulated_type: str) -> None:
    """Start recording uses of vendors' names in this process.

    `simulated_type` is the torch device type of the simulated device.
    """
    _Recording(simulated_type).start()


class _Recording:
    """A recording of the vendor-specific places in a single process."""

    def __init__(self, simulated_type: str) -> None:
        self._simulated_type = simulated_type
        self._log = Log(os.environ[RECORD_FOLDER_VARIABLE], simulated_type)
        self._names = names.names_to_record(simulated_type)
        #: The library that intercepts device strings, or `None` if torch has not been imported or loading
        #: failed.
        self._string_interceptor: ctypes.CDLL | None = None

    def start(self) -> None:
        """Start recording environment variables now, and uses of torch when torch is imported."""
        sys.addaudithook(self._watch_files)
        environment.watch(self._log, self._names)
        imports.on_import("torch", before=self._load_library, after=self._watch_torch)

    def _watch_files(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Record each of the user's files that Python runs: the program's main file, and each import."""
        if (
            event != "exec"
        ):  # Python raises this audit event before it runs a code object
            return
        code = arguments[0]
        if not isinstance(code, CodeType) or code.co_name != "<module>":
            return
        if attribution.is_user_file(code.co_filename):
            self._log.record_source(code.co_filename)

    def _load_library(self) -> None:
        """Load the library that intercepts device strings, just before torch is imported."""
        from accel_simulated.detector import device_strings

        folder = os.environ[RECORD_FOLDER_VARIABLE]
        self._string_interceptor = device_strings.load(folder)

    def _watch_torch(self, torch: ModuleType) -> None:
        """Start recording uses of torch, and record the allocated memory when the process ends."""
        from multiprocessing import util

        from accel_simulated.detector import device_strings, torch_names
        from accel_simulated.detector.arguments import Arguments
        from accel_simulated.request import current_request

        request = current_request()
        collective = request.vendor.collective if request is not None else ""
        torch_names.watch(self._log, self._names)
        Arguments(self._log, self._names, self._simulated_type, collective).watch()
        library = self._string_interceptor
        if library is not None and device_strings.intercepts_torch(library):
            device_strings.watch(library, self._log, self._names)
        else:
            self._log.add_note(
                f"device strings, because torch {torch.__version__} does not pass them to the detector"
            )
        atexit.register(self._record_allocation)
        # A forked worker does not run `atexit` functions.
        util.register_after_fork(self, _Recording._record_at_end_of_worker)

    def _record_at_end_of_worker(self) -> None:
        """Record the allocated memory when this `multiprocessing` worker, a forked child process, ends."""
        from multiprocessing import util

        # multiprocessing calls finalizers when a worker ends.
        util.Finalize(None, self._record_allocation, exitpriority=0)

    def _record_allocation(self) -> None:
        """Record the peak number of bytes allocated on the devices, when this process ends."""
        import torch

        size = 0
        with contextlib.suppress(Exception):  # raised if the device was not started
            for index in range(torch.accelerator.device_count()):
                statistics = torch.accelerator.memory_stats(index)
                size += int(statistics.get("allocated_bytes.all.peak", 0))
        self._log.record_allocation(size)
