"""Who this process is among the ranks: torchrun's variables."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import NamedTuple

from accel_core.errors import LaunchError
from accel_core.settings import LOCAL_RANK, MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE

__all__ = ["Rank", "read_rank"]


class Rank(NamedTuple):
    """One process of a job."""

    rank: int
    world_size: int
    #: Its number on its host; `None` where nothing says so.
    local_rank: int | None
    host: str

    def __str__(self) -> str:
        return f"rank {self.rank} (host {self.host})"


def read_rank(
    rank: int | None = None,
    world_size: int | None = None,
    *,
    rendezvous: bool = True,
    environ: Mapping[str, str] | None = None,
) -> Rank:
    """This process's place, from torchrun's variables; `rank` and `world_size` win over them.

    `rendezvous`: the ranks meet through `MASTER_ADDR` and `MASTER_PORT`, so these must be set too. Raises
    `LaunchError` that names every missing variable, and `SettingError` for one that is no number.
    """
    env = os.environ if environ is None else environ
    needed = [RANK.name] if rank is None else []
    needed += [WORLD_SIZE.name] if world_size is None else []
    needed += [LOCAL_RANK.name, MASTER_ADDR.name, MASTER_PORT.name] if rendezvous else []
    missing = [name for name in needed if not env.get(name, "").strip()]
    if missing:
        raise LaunchError(
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set: this process was not "
            "started as a rank. Start the script with accel run (or torchrun), on one host: "
            "accel run train.py"
        )
    if rendezvous:
        MASTER_PORT.read(env)  # its complaint is clearer than torch's
    found = Rank(
        rank=RANK.read(env) if rank is None else rank,
        world_size=WORLD_SIZE.read(env) if world_size is None else world_size,
        local_rank=LOCAL_RANK.read(env) if env.get(LOCAL_RANK.name, "").strip() else None,
        host=socket.gethostname(),
    )
    if not 0 <= found.rank < found.world_size:
        raise LaunchError(f"rank {found.rank} does not exist among {found.world_size} ranks")
    return found
