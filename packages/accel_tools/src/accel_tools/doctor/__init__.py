"""`accel doctor`: report what is wrong with the accelerators of this machine, and how to correct it.

Each topic (`topics/`) examines one matter. Topics run in parallel and independently: if one fails, its report
says so and the others continue. `run.py` makes a report of them, and the command prints it.
"""
