"""The device on which both classes are asked, and how a case is written."""

from dataclasses import dataclass

import torch

MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Device:
    """The device on which both are asked."""

    #: torch's device type.
    type: str
    #: The highest index of a device, and of a device that has a generator of its own.
    last: int = 1
    last_generator: int = 1
    #: One of the `torch.compile` backends that are registered here.
    compile_backend: str = "eager"

    def name(self, index):
        """The device's name in torch."""
        return f"{self.type}:{index}"

    def draw(self, index=0):
        """Numbers that the device's generator gives next."""
        return torch.rand(3, device=self.name(index)).cpu()

    def block(self, size=MEGABYTE):
        """That many bytes on the current device."""
        return torch.empty(size, dtype=torch.uint8, device=self.type)


def member(name, *arguments, **named):
    """The case that calls the member of that name."""
    return lambda acc: getattr(acc, name)(*arguments, **named)


def members(*names):
    """Members called without arguments."""
    return {name: member(name) for name in names}
