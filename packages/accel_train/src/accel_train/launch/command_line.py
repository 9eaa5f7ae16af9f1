"""Parse the command line of `accel run`: its own options, torchrun's options, and the help for both."""

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

__all__ = ["FLAGS", "OPTIONS", "TORCHRUN_OPTIONS", "parse"]

_USAGE = "accel run [options of accel or torchrun] SCRIPT [arguments of the script]"
_ABOUT = """Start one process per device on this host, like torchrun, on the chosen accelerator.

Without --nproc-per-node, one rank is started for each device (on the CPU: for each NUMA node). Each rank is
bound to cores near its device. DS_ACCELERATOR is set to the accelerator chosen here, so that all ranks use
the same one."""

#: `accel run`'s own options with a value: the metavar and the help text of each.
OPTIONS = {
    "--backend": ("NAME", "name of the accelerator to use, as for DS_ACCELERATOR"),
    "--communication-backend": (
        "NAME",
        "torch.distributed's communication backend [default: the accelerator's]",
    ),
    "--timeout": ("SECONDS", "time limit for each probe, as for accel list"),
    "--folder": (
        "FOLDER",
        "use this machine's environment in FOLDER, made by accel setup --into; must be the first option",
    ),
}
#: `accel run`'s own options without a value: the help text of each.
FLAGS = {
    "--one-device-per-rank": (
        "make only one device visible to each rank, as device 0 [by default, all devices are visible, and "
        "each rank uses the device with the index LOCAL_RANK]"
    ),
    "--no-bind": "do not bind ranks to CPU cores",
    "--no-integrations": "do not prepare frameworks, such as DeepSpeed, for the accelerator",
    "--doctor": "examine each rank's machine before the script starts; rank 0 reports the differences",
    "--dry-run": "print the plan for each rank without starting any rank",
}
#: torchrun's most used options, in the same form as `OPTIONS`, for the short help text.
TORCHRUN_OPTIONS = {
    "--nproc-per-node": (
        "N",
        "number of ranks on this host [default: one for each device]",
    ),
    "--nnodes": ("N", "number of hosts, or the minimum and maximum, such as 2:4"),
    "--node-rank": (
        "N",
        "this host's number, from 0; not needed if the rendezvous numbers the hosts, as c10d does",
    ),
    "--rdzv-backend": ("NAME", "how the hosts find each other, such as c10d"),
    "--rdzv-endpoint": ("HOST:PORT", "address at which the hosts find each other"),
    "--rdzv-id": ("ID", "the job's name, the same on all hosts"),
    "--max-restarts": (
        "N",
        "how many times to restart all ranks after a rank has failed",
    ),
    "--log-dir": ("FOLDER", "folder for the output of the ranks"),
    "--module": ("", "SCRIPT is the name of a module (-m)"),
    "--no-python": ("", "SCRIPT is a command that is not run by Python"),
}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line of `accel run`: its own options and torchrun's options, in any order.

    Exits with status 0 after printing a help text, and with status 2 after a usage error. Raises
    `BackendUnavailableError` if torch, which contains torchrun's parser, is not installed. Raises
    `LaunchError` if the installed torch has no torchrun.
    """
    # Checked first, because importing torch takes a second or more.
    if arguments and arguments[0] in ("-h", "--help"):
        _print_and_exit(_format_help())
    try:
        parser = _combined_parser([_torchrun_parser()])
    except (BackendUnavailableError, ImportError) as error:
        # If --help or --help-all is among the arguments, the parser prints the help and exits.
        _combined_parser([], missing_reason=str(error)).parse_known_args(arguments)
        if isinstance(error, BackendUnavailableError):
            raise
        raise LaunchError(
            f"the installed torch has no torch.distributed.run: {error}"
        ) from error
    _set_defaults(parser)
    parsed, unknown_arguments = parser.parse_known_args(arguments)
    if unknown_arguments:
        message = _unknown_option_message(unknown_arguments[0], parser)
        parser.error(f"{message} accel run --help-all lists all options.")
    return parsed


def _unknown_option_message(argument: str, parser: argparse.ArgumentParser) -> str:
    """Return the message for an option that does not exist, with the most similar option that exists."""
    # The long options in the help text, such as --dry-run.
    known_options = set(re.findall(r"--[a-z][\w-]*", parser.format_help()))
    option, _, _value = argument.partition("=")
    matches = difflib.get_close_matches(option.replace("_", "-"), known_options, n=1)
    message = f"unknown option {option}."
    if matches:
        message += f" Did you mean {matches[0]}?"
    return message


def _set_defaults(parser: argparse.ArgumentParser) -> None:
    """Set the defaults of `accel run` for two options of torchrun, unless `PET_…` variables set them."""
    # A variable such as PET_NPROC_PER_NODE is torchrun's default for the option of the same name.
    if "PET_NPROC_PER_NODE" not in os.environ:
        parser.set_defaults(nproc_per_node="auto")
    signals = parser.get_default("signals_to_handle")
    # torch 2.6 does not have this option.
    if signals and os.name != "nt" and "PET_SIGNALS_TO_HANDLE" not in os.environ:
        # Slurm sends one of these before the end of the job's time, so that the script can save a checkpoint.
        parser.set_defaults(signals_to_handle=f"{signals},SIGUSR1,SIGUSR2")


def _torchrun_parser() -> argparse.ArgumentParser:
    """Return torchrun's parser.

    Raises `BackendUnavailableError` if torch is not installed, and `ImportError` if torch has no torchrun.
    """
    import_torch()
    from torch.distributed.run import get_args_parser

    parser: argparse.ArgumentParser = get_args_parser()
    return parser


def _combined_parser(
    parsers: list[argparse.ArgumentParser], missing_reason: str = ""
) -> argparse.ArgumentParser:
    """Return a parser with the options of `parsers` and of `accel run`, and `--help` and `--help-all`.

    `missing_reason` is why torchrun's options are missing, for the help text, or an empty string if they are
    included.
    """
    parser = argparse.ArgumentParser(
        prog="accel run",
        usage=_USAGE,
        parents=parsers,
        conflict_handler="resolve",
        add_help=False,
        # Otherwise, an option of the script that abbreviates two options of torchrun would be an error.
        allow_abbrev=False,
    )
    parser.add_argument(
        "-h",
        "--help",
        action=_HelpAction,
        show_all=False,
        missing_reason=missing_reason,
    )
    parser.add_argument(
        "--help-all", action=_HelpAction, show_all=True, missing_reason=missing_reason
    )
    _add_own_options(parser)
    return parser


def _add_own_options(parser: Any) -> None:
    """Add the options that only `accel run` has to a parser or to an argument group."""
    for name, (metavar, text) in OPTIONS.items():
        value_type = _parse_seconds if metavar == "SECONDS" else str
        parser.add_argument(name, metavar=metavar, help=text, type=value_type)
    for name, text in FLAGS.items():
        parser.add_argument(name, action="store_true", help=text)


def _parse_seconds(text: str) -> float:
    """Parse a positive number of seconds. Raises `ArgumentTypeError` if `text` is anything else."""
    with contextlib.suppress(ValueError):
        seconds = float(text)
        if 0 < seconds < float("inf"):
            return seconds
    raise argparse.ArgumentTypeError(
        f"{text!r} is not valid, expected a number of seconds above 0"
    )


class _HelpAction(argparse.Action):
    """The action of `--help` and `--help-all`: print the help and exit."""

    def __init__(
        self,
        option_strings: Sequence[str],
        *,
        show_all: bool,
        missing_reason: str,
        **other_options: Any,
    ) -> None:
        super().__init__(option_strings, nargs=0, **other_options)
        self._show_all, self._missing_reason = show_all, missing_reason

    def __call__(self, *_: object) -> None:
        _print_and_exit(
            _format_help(show_all=self._show_all, missing_reason=self._missing_reason)
        )


def _print_and_exit(text: str) -> NoReturn:
    sys.stdout.write(text)
    sys.stdout.flush()
    sys.exit(0)


def _format_help(*, show_all: bool = False, missing_reason: str = "") -> str:
    """Return the help text with the options of `accel run`, and with torchrun's most used options.

    With `show_all`, the text has all of torchrun's options. `missing_reason` is why torchrun's options cannot
    be shown, or an empty string if they can be shown.
    """
    if not missing_reason and torch_build() is None:
        missing_reason = (
            "torch is not installed. Next step: "
            f"{vendors.command_with_its_package('accel setup')}"
        )
    # A parser that only formats the help.
    own_parser = argparse.ArgumentParser(
        prog="accel run", usage=_USAGE, description=_ABOUT, add_help=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    group = own_parser.add_argument_group("options of accel")
    _add_own_options(group)
    group.add_argument("-h", "--help", action="store_true", help="show this help")
    group.add_argument(
        "--help-all",
        action="store_true",
        help="show this help with all options of torchrun",
    )
    if missing_reason:
        own_parser.epilog = f"torchrun's options are not shown: {missing_reason}"
        return own_parser.format_help()
    if show_all:
        torchrun_parser = _torchrun_parser()
        torchrun_parser.usage = argparse.SUPPRESS
        torchrun_parser.description = "options of torchrun:"
        return f"{own_parser.format_help()}\n{torchrun_parser.format_help().lstrip()}"
    most_used = own_parser.add_argument_group(
        "most used options of torchrun (--help-all shows all)"
    )
    for name, (metavar, text) in TORCHRUN_OPTIONS.items():
        if metavar:
            most_used.add_argument(name, help=text, metavar=metavar)
        else:
            most_used.add_argument(name, help=text, action="store_true")
    return own_parser.format_help()
