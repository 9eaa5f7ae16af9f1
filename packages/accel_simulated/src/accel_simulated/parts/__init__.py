"""Functions and classes of the vendors' device modules, implemented for the simulated device.

A vendor's simulated package contains the functions and classes that its surface file lists. Import these
modules after `device.start`, because defaults such as `device="mlu"` are set at import. A test compares each
signature with the surface file.
"""
