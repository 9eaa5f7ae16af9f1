"""A test class that contains every conformance check, for vendors to subclass."""

from __future__ import annotations

from accel_testing.conformance.compute.test_amounts import TestMemory
from accel_testing.conformance.compute.test_arithmetic import TestArithmetic
from accel_testing.conformance.compute.test_compiling import TestCompiling
from accel_testing.conformance.compute.test_forms import TestShapesAndTypes
from accel_testing.conformance.compute.test_numbers import TestNumbers
from accel_testing.conformance.compute.test_queues import TestQueues
from accel_testing.conformance.compute.test_randomness import TestRandomness
from accel_testing.conformance.compute.test_reductions import TestReductions
from accel_testing.conformance.compute.test_samples import TestSamples
from accel_testing.conformance.frameworks.test_deepspeed import TestDeepSpeed
from accel_testing.conformance.frameworks.test_lightning import TestLightning
from accel_testing.conformance.frameworks.test_transformers import TestTransformers
from accel_testing.conformance.interface.test_answers import TestReturnTypes
from accel_testing.conformance.interface.test_guards import TestGuards
from accel_testing.conformance.interface.test_selection import TestSelection
from accel_testing.conformance.interface.test_sharing import TestSharing
from accel_testing.conformance.interface.test_signatures import TestSignatures
from accel_testing.conformance.interface.test_traces import TestSideEffects
from accel_testing.conformance.interface.test_types import TestTypes
from accel_testing.conformance.ranks.test_distributed import TestDistributed
from accel_testing.conformance.test_declaration import TestDeclaration

__all__ = ["AcceleratorTests"]


class AcceleratorTests(
    TestDeclaration,
    TestSignatures,
    TestReturnTypes,
    TestTypes,
    TestSelection,
    TestSharing,
    TestGuards,
    TestSideEffects,
    TestArithmetic,
    TestNumbers,
    TestReductions,
    TestShapesAndTypes,
    TestRandomness,
    TestQueues,
    TestMemory,
    TestCompiling,
    TestSamples,
    TestDistributed,
    TestDeepSpeed,
    TestLightning,
    TestTransformers,
):
    """A test class with all conformance checks of an accelerator, for vendors to subclass.

    The name of the subclass must begin with `Test`, and its attribute `backend` must be set.
    """
