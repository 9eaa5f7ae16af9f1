"""Modules that are there and fail when they are imported, for the program of a child process."""

from __future__ import annotations

__all__ = ["FAILING"]

#: Whatever name is in the list `failing` is found, and raises while it is imported.
FAILING = """
import importlib.machinery, sys

class Failing:
    def find_spec(self, name, path=None, target=None):
        if name in failing:
            return importlib.machinery.ModuleSpec(name, self)
    def create_module(self, spec): ...
    def exec_module(self, module):
        raise RuntimeError("it is broken")

failing = []
sys.meta_path.insert(0, Failing())
"""
