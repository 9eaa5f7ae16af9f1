"""The command line of `accel run`: our options, torchrun's options, and the help for both."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from accel_core import torch_build
from accel_core.errors import BackendUnavailableError, LaunchError
from accel_core.hardware import vendors
from accel_core.torch_import import import_torch

__all__ = ["FLAGS", "MOST_USED", "OPTIONS", "parse"]

_USAGE = "accel run [options of accel or torchrun] SCRIPT [arguments of the script]"
_ABOUT = """Start the ranks of a distributed job on this host: torchrun, for whatever accelerator is chosen.

Without --nproc-per-node, one rank for each device (on the CPU: for each NUMA node). Each rank is bound to
cores near its device. DS_ACCELERATOR is set to what was chosen here, so that all ranks choose the same."""

#: Our own options that take a value, with a word for it, and those that take none.
OPTIONS = {
    "--backend": ("NAME", "accelerator to use: a name as in DS_ACCELERATOR"),
    "--communication-backend": (
        "NAME",
        "torch.distributed's backend [the accelerator's own]",
    ),
    "--timeout": ("SECONDS", "how long each probe may take, as for accel list"),
}
FLAGS = {
    "--one-device-per-rank": (
        "each rank sees only its own device, as device 0; default: it sees all, and uses number LOCAL_RANK"
    ),
    "--no-bind": "do not bind ranks to cores",
    "--no-integrations": "do not prepare frameworks (Accelerate, DeepSpeed) that the ranks import",
    "--doctor": "every rank examines its machine first, and rank 0 reports the differences",
    "--dry-run": "print the plan for each rank, start nothing",
}
#: Those of torchrun's that most jobs need, in our words: torch is not imported to show them.
MOST_USED = {
    "--nproc-per-node": ("N", "ranks on this host [one for each device]"),
    "--nnodes": ("N", "number of hosts, or minimum and maximum: 2:4"),
    "--node-rank": (
        "N",
        "number of this host, from 0, if the hosts do not agree on numbers themselves",
    ),
    "--rdzv-backend": ("NAME", "how hosts find each other: c10d"),
    "--rdzv-endpoint": ("HOST:PORT", "address where the hosts meet"),
    "--rdzv-id": ("ID", "the job's name, the same on all hosts"),
    "--max-restarts": ("N", "how often to restart the ranks after one failed"),
    "--log-dir": ("FOLDER", "folder for the output of the ranks"),
    "--module": ("", "SCRIPT is a module (-m)"),
    "--no-python": ("", "SCRIPT is a command"),
}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line, with torchrun's options and ours in any order; exits for help and bad usage.

    Raises `BackendUnavailableError` if torch, and so torchrun's parser, is missing.
    """
    # At once, where it is all that is asked: torch takes a second or more.
    if arguments and arguments[0] in ("-h", "--help"):
        _say(_help())
    try:
        parser = _beside_ours([_torchruns()])
    except (BackendUnavailableError, ImportError) as error:
        _beside_ours([], unseen=str(error)).parse_known_args(arguments)
        if isinstance(error, BackendUnavailableError):
            raise
        raise LaunchError(
            f"this torch has no torch.distributed.run: {error}"
        ) from error
    if (
        "PET_NPROC_PER_NODE" not in os.environ
    ):  # how torchrun takes options from the environment
        parser.set_defaults(nproc_per_node="auto")
    handled = parser.get_default("signals_to_handle")
    # torch 2.6 has no such option.
    if handled and os.name != "nt" and "PET_SIGNALS_TO_HANDLE" not in os.environ:
        # Slurm announces the end of a job's time by one of these, for the script to save its work.
        parser.set_defaults(signals_to_handle=f"{handled},SIGUSR1,SIGUSR2")
    parsed, unknown = parser.parse_known_args(arguments)
    if unknown:
        parser.error(
            f"{_unknown(unknown[0], parser)} accel run --help-all names them all."
        )
    return parsed


def _unknown(word: str, parser: argparse.ArgumentParser) -> str:
    """Return a sentence about an option that nobody has, with those that are spelled nearly so."""
    known = set(re.findall(r"--[a-z][\w-]*", parser.format_help()))
    typed = word.partition("=")[0]
    near = difflib.get_close_matches(typed.replace("_", "-"), known, n=1)
    return f"there is no option {typed}." + (
        f" Did you mean {near[0]}?" if near else ""
    )


def _torchruns() -> argparse.ArgumentParser:
    """A parser of torchrun's; raises where there is none."""
    import_torch()
    from torch.distributed.run import get_args_parser

    parser: argparse.ArgumentParser = get_args_parser()
    return parser


def _beside_ours(
    parsers: list[argparse.ArgumentParser], unseen: str = ""
) -> argparse.ArgumentParser:
    """Combine these parsers with our options, and our help instead of theirs."""
    parser = argparse.ArgumentParser(
        prog="accel run",
        usage=_USAGE,
        parents=parsers,
        conflict_handler="resolve",
        add_help=False,
        # Else an option of the script that begins like two of torchrun's is an error.
        allow_abbrev=False,
    )
    parser.add_argument("-h", "--help", action=_Help, all_of_it=False, unseen=unseen)
    parser.add_argument("--help-all", action=_Help, all_of_it=True, unseen=unseen)
    _add_ours(parser)
    return parser


def _add_ours(parser: Any) -> None:
    """Our options, to a parser or to a group of one."""
    for name, (metavar, text) in OPTIONS.items():
        kind = _seconds if metavar == "SECONDS" else str
        parser.add_argument(name, metavar=metavar, help=text, type=kind)
    for name, text in FLAGS.items():
        parser.add_argument(name, action="store_true", help=text)


def _seconds(text: str) -> float:
    """Read a time; argparse puts the option's name before what is wrong with it."""
    with contextlib.suppress(ValueError):
        if 0 < (seconds := float(text)) < float("inf"):
            return seconds
    raise argparse.ArgumentTypeError(
        f"{text!r} is not valid, expected a number of seconds above 0"
    )


class _Help(argparse.Action):
    """`--help` and `--help-all`."""

    def __init__(
        self,
        option_strings: Sequence[str],
        *,
        all_of_it: bool,
        unseen: str,
        **more: Any,
    ) -> None:
        super().__init__(option_strings, nargs=0, **more)
        self._all, self._unseen = all_of_it, unseen

    def __call__(self, *_: object) -> None:
        _say(_help(all_of_it=self._all, unseen=self._unseen))


def _say(text: str) -> NoReturn:
    sys.stdout.write(text)
    sys.stdout.flush()
    sys.exit(0)


def _help(*, all_of_it: bool = False, unseen: str = "") -> str:
    """Our options first; behind them those of torchrun's that are used most, or all."""
    if not unseen and torch_build() is None:
        unseen = (
            f"torch is not installed: {vendors.command_with_its_package('accel setup')}"
        )
    ours = argparse.ArgumentParser(
        prog="accel run", usage=_USAGE, description=_ABOUT, add_help=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    group = ours.add_argument_group("options of accel")
    _add_ours(group)
    group.add_argument("-h", "--help", action="store_true", help="show this")
    group.add_argument(
        "--help-all",
        action="store_true",
        help="show this, with all options of torchrun",
    )
    if unseen:
        ours.epilog = f"torchrun's own options are not shown: {unseen}"
    elif not all_of_it:
        most = ours.add_argument_group(
            "options of torchrun that are used most (--help-all shows all)"
        )
        for name, (metavar, text) in MOST_USED.items():
            more: dict[str, Any] = (
                {"metavar": metavar} if metavar else {"action": "store_true"}
            )
            most.add_argument(name, help=text, **more)
    text = ours.format_help()
    if all_of_it and not unseen:
        theirs = _torchruns()
        theirs.usage, theirs.description = argparse.SUPPRESS, "options of torchrun:"
        text += f"\n{theirs.format_help().lstrip()}"
    return text
