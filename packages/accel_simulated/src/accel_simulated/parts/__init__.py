"""Functions as vendors' device modules have them, over the simulated device.

A vendor's simulated package picks those that its surface file has. Import after `device.start`: defaults
such as `device="mlu"` are fixed then. A test compares every signature with the surface file.
"""
