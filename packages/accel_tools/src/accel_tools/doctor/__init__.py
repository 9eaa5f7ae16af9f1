"""`accel doctor`: report the problems with the accelerators of this machine, and the next steps.

Each topic (`topics/`) examines one subject. Topics run in parallel and independently: if a topic fails,
the report states the failure, and the other topics continue. `run.py` builds the report from the findings,
and the command prints the report.
"""
