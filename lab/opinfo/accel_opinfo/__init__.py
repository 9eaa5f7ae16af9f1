"""torch's own database of operators, run on a device against the CPU.

`compare` says how two results differ, `operators` runs a case, `worker` runs cases that a process above asks
for. The same inputs on both come from the kit (`accel_testing.conformance.compute.copying`).
"""
