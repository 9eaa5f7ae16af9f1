"""`torch.neuron`, simulated. Its names are those of its surface file; a test makes the calls seen there."""

from accel_simulated.shape import fill

_initialized = False
default_generators = ()  # filled when the runtime starts


fill(globals(), "torch.neuron")
del fill
