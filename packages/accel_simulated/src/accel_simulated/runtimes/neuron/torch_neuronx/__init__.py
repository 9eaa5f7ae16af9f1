"""A simulation of AWS's torch_neuronx for tests, with the names in its surface file.

The source of AWS's package was not available, so the surface file lists names that other packages call. Names
that no known package calls are absent.
"""

import sys

from accel_simulated import vendor_package
from accel_simulated.imports import on_import

__version__ = "2.13.3.0+simulated"

vendor_package.load_device("neuron")

import torch_neuronx.neuron

vendor_package.register_module(torch_neuronx.neuron)


def _register_compiler(registry):
    """Register the compiler `neuron` with Dynamo, as AWS's package does. It compiles with inductor."""

    def compile_graph(graph, inputs, **options):
        # Imported here because inductor takes seconds to import.
        from torch._inductor.compile_fx import compile_fx

        return compile_fx(graph, inputs, **options)

    registry.register_backend(compile_graph, name="neuron")


# Dynamo takes a second to import, so its registry is completed when a program imports Dynamo.
_REGISTRY = "torch._dynamo.backends.registry"
if _REGISTRY in sys.modules:
    _register_compiler(sys.modules[_REGISTRY])
else:
    on_import(_REGISTRY, after=_register_compiler)
