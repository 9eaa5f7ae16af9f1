"""Adapt accel_core to frameworks that find devices by entry points: one module for each framework.

A framework loads its adapter by the entry point that pyproject.toml declares, so a program writes no line.
An adapter imports torch and its framework only when that framework asks.
"""
