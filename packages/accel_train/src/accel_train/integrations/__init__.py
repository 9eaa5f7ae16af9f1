"""Adapt accel_core to frameworks that find devices by entry points, with one module for each framework.

A framework loads its adapter by the entry point that pyproject.toml declares, so a program needs no extra
line. An adapter imports torch and its framework only when the framework calls the adapter.
"""
