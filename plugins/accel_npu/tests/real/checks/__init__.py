"""Checks of the npu accelerator that run in a child process, one a module: see `run.py`."""
