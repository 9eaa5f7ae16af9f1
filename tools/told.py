"""What the sessions for users say."""

from __future__ import annotations

__all__ = ["ABOUT_THE_TESTS", "AFTER_THE_DEMO", "step"]


def step(what: str, command: str) -> None:
    """Say what the demo does next, and the command to do it again by hand."""
    print(f"\n{what}\n     $ {command}\n", flush=True)


AFTER_THE_DEMO = """
What next?  {activate} puts `accel` and this Python on your path. Then

  accel why                  why this one was chosen, and why not each other
  accel info                 what it is and can do
  DS_ACCELERATOR=cpu python examples/train_digits.py       the same on a backend that you name

README.md, "Use", has the four lines for a program of your own. `./dev test` runs the tests.
"""

ABOUT_THE_TESTS = """
This takes some 10 minutes on two cores, and some more the first time: it fills environments in .nox/.
Sessions: docs, lint, types, tests, wheels, and without torch on Python {python}.
Left out, as each has an environment of its own: {apart}.
`.github/workflows` runs those too, `.ci/run` most, `./dev NAME` one. For a CUDA or ROCm device: `./dev gpu`.
"""
