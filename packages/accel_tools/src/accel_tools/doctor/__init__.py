"""`accel doctor`: what is wrong with the accelerators of this machine, and what to do.

Topics look at one matter each (`topics/`), side by side and each on its own: one that fails says so and
the others go on. `run.py` makes them a report; the command shows it.
"""
