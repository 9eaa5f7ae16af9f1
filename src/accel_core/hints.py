"""List the next steps for errors that have the same cause on every device.

A plugin declares hints for its vendor's errors in `Backend.hints`.
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
            "list the processes that hold the device's memory with the vendor's tool, or "
            "reduce the program's memory use"
        ),
    ),
)
#: The pattern for backends that use torch's PrivateUse1 slot, of which a process has one.
#: The name of the slot alone is not a pattern, because torch lists its dispatch keys in
#: errors with other causes.
_PRIVATE_USE1 = r"(rename|register)_privateuse1_backend|already been (set|registered)"


def hints_of(backend: Backend) -> tuple[tuple[str, str], ...]:
    """Return the error hints that the backend declares, followed by the hints that
    apply to every device.
    """
    if not backend.torch_integration.private_use1:
        return (*backend.hints, *COMMON)
    step = (
        "a process can use the device of only one vendor: set "
        f"DS_ACCELERATOR={backend.name} before another vendor's package is imported"
    )
    return (*backend.hints, (_PRIVATE_USE1, step), *COMMON)
