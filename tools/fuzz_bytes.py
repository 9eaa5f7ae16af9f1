"""Bytes for what reads others' text and files, guided by the lines that they reach: atheris, a process each.

`fuzz_bytes.py [--seconds N]`; with a reader's name behind it that one alone, in this process. What is found
is written to the current folder as `crash-…`, and ends the run.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable

import atheris

with atheris.instrument_imports(include=["accel_core"]):
    from accel_core.backend import GRAMMARS
    from accel_core.errors import SettingError
    from accel_core.hardware.visible_devices import parse_visible_devices

#: Bytes of an input at most, and seconds and MiB that reading it may take.
LIMITS = ("-max_len=4096", "-timeout=10", "-rss_limit_mb=2048")


def _visible_devices(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    for grammar in GRAMMARS:
        try:
            parse_visible_devices(grammar, text)
        except SettingError as error:
            assert str(error)  # noqa: PT017 - it says what was given


READERS: dict[str, Callable[[bytes], None]] = {"visible-devices": _visible_devices}


def main() -> int:
    """Run all of them, one after the other, or the one that is named."""
    parser = argparse.ArgumentParser(prog="fuzz_bytes.py")
    parser.add_argument(
        "--seconds", type=float, default=300.0, help="for all of them together [300]"
    )
    parser.add_argument("reader", nargs="?", choices=READERS)
    given = parser.parse_args()
    if given.reader:
        atheris.Setup(
            [sys.argv[0], f"-max_total_time={given.seconds:.0f}", *LIMITS],
            READERS[given.reader],
        )
        atheris.Fuzz()  # ends the process
    for reader in READERS:
        seconds = max(1.0, given.seconds / len(READERS))
        print(f"{reader}, {seconds:.0f} s", flush=True)
        command = [sys.executable, __file__, f"--seconds={seconds:.0f}", reader]
        subprocess.run(command, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
