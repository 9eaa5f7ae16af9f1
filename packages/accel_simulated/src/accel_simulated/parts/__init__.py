"""Functions and classes for vendors' device modules, implemented for the simulated device.

A vendor's simulated package contains those functions and classes that its surface file lists. Import these
modules only after `device.start`, because default arguments such as `device="mlu"` are set on import. A test
compares each signature with the surface file.
"""
