"""Adapters for frameworks that find devices by entry points: one module for each framework.

A framework loads its adapter by the entry point that pyproject.toml declares, so a program writes no line for it.
Each adapter is at most 80 lines of code, and imports neither torch nor its framework before that framework asks.
"""
