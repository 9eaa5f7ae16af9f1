"""Ports for ranks to meet on."""

import random
import socket

#: Below what Linux (32768), macOS and Windows (49152) give to whoever asks for any port.
_OURS = range(20_000, 32_000)


def free_port():
    """A port of this host that is free, and that the system gives to nobody who does not name it.

    Rank 0 listens on it seconds later. Until then other tests' ranks listen too, on ports that the system
    picks: one from the same range was sometimes theirs, and the test waited for its timeout.
    """
    # Not the shared generator, which something may have seeded alike in two of xdist's processes.
    for port in random.SystemRandom().sample(_OURS, 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"100 ports of {_OURS} were tried, and none is free")
