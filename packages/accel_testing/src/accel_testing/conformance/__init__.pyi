from accel_testing.conformance.suite import AcceleratorTests as AcceleratorTests

__all__ = ["AcceleratorTests"]
