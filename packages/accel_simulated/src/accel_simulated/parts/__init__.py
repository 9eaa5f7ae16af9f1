"""Functions and classes of vendors' device modules, for the simulated device.

A vendor's simulated package has those that are in its surface file. Import them after `device.start`, because
defaults such as `device="mlu"` are set at import. A test compares each signature with the surface file.
"""
