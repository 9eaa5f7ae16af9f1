"""Next steps for errors that mean the same on every device.

A plugin declares hints for its vendor's own errors in `Backend.hints`.
"""

from accel_core.backend import Backend

#: Pairs as in `Backend.hints`: a regular expression, and the user's next step.
COMMON = (
    (
        r"in (a )?forked",
        "use the start method 'spawn', or do not touch the device before the fork",
    ),
    (
        r"out of memory",
        (
            "look with the vendor's tool which processes hold the device's memory, or use less of it"
        ),
    ),
)
#: For backends in torch's PrivateUse1, which a process has once.
_PRIVATE_USE1 = r"privateuse1|already been (set|registered)"


def hints_of(backend: Backend) -> tuple[tuple[str, str], ...]:
    """Return the hints that the backend declares, followed by the common ones."""
    if not backend.torch_integration.private_use1:
        return (*backend.hints, *COMMON)
    step = (
        f"a process has room for one vendor: set DS_ACCELERATOR={backend.name} before "
        "anything imports another's package"
    )
    return (*backend.hints, (_PRIVATE_USE1, step), *COMMON)
