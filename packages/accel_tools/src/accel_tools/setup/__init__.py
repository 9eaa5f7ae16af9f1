"""Determine which torch, vendor package and toolkit a machine needs.

The modules read the machine's files, make a plan, and format the command that installs it.
"""
