"""torch's own databases of operators, modules and optimizers, run on a device against the CPU.

`transfer` gives both the same inputs, `compare` says how two results differ, `operators`, `modules` and
`optimizers` run a case of their database, `worker` runs cases that a process above asks for.
"""
