"""`habana_frameworks.torch.core`, simulated: DeepSpeed imports `hpu` from this module."""

from habana_frameworks.torch import hpu
