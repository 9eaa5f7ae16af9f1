"""torch's own database of operators, run on a device against the CPU.

`transfer` gives both the same inputs, `compare` says how two results differ, `operators` runs a case,
`worker` runs cases that a process above asks for.
"""
