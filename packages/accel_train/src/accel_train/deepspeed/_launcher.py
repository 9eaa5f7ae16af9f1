"""DeepSpeed's own launcher, with the integration activated in every process that it starts."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from accel_core.errors import IntegrationError
from accel_core.explain.autoload import autoload_conflicts
from accel_core.settings import read as read_settings
from accel_train.deepspeed import _children, activate
from accel_train.launch.environment import for_ranks, why_kept

__all__ = ["launch"]


def launch(arguments: Sequence[str]) -> None:
    """Run DeepSpeed's launcher on `arguments`. If a rank fails, end this process with the rank's status.

    Raises what `activate()` raises, and `IntegrationError` if the ranks would not activate the integration.
    """
    if reason := _children.obstacle():
        raise IntegrationError(f"{reason}.")
    accelerator = activate().accelerator
    spoiled = autoload_conflicts(accelerator.backend, read_settings().probe_timeout)
    if spoiled:
        sys.stderr.write(f"{why_kept(spoiled)}\n\n")
    os.environ.update(for_ranks(accelerator.backend, spoiled))
    # The launcher's parser takes its name from here, and its autotuner repeats the command.
    sys.argv[:] = ["accel deepspeed", *arguments]
    from deepspeed.launcher import runner

    words = list(arguments)
    if not _takes_local_rank(runner.parse_args(words)):
        words.insert(0, "--no_local_rank")
    runner.main(words)


def _takes_local_rank(parsed: argparse.Namespace) -> bool:
    """Whether the script may know `--local_rank`, which the launcher adds: its source has the name.

    Another script would end with "unrecognized arguments"; in `LOCAL_RANK` each rank has its number anyway.
    """
    if parsed.module or parsed.no_python:
        return True
    try:
        source = Path(parsed.user_script).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    return re.search("local[_-]rank", source) is not None
