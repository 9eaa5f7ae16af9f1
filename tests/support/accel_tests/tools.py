"""The tools of the tree, which are scripts and no package, as modules for their tests."""

import importlib
import sys
from pathlib import Path

import pytest

#: The words of a text, for a list of many.
words = str.split
TREE = Path(__file__).resolve().parents[3]


def load(name, place="tools"):
    """The module `<place>/<name>.py`; skips the tests of the module that asks where the tree has no tools."""
    folder = TREE / place
    if not (folder / f"{name}.py").is_file():
        pytest.skip("an sdist has no tools", allow_module_level=True)
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))


def raising(error):
    """A function that raises `error`, whatever it is given."""

    def ask(device=None, *_, **__):
        raise error

    return ask
