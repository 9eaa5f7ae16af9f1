"""`habana_frameworks.torch.core`, simulated: DeepSpeed takes `hpu` from it."""

from habana_frameworks.torch import hpu
