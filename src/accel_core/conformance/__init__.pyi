from accel_core.conformance.suite import AcceleratorTests as AcceleratorTests

__all__ = ["AcceleratorTests"]
