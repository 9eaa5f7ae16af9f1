"""TRL's configuration with our mixin. In a module of its own: importing TRL takes as long as all the rest."""

from __future__ import annotations

from trl import SFTConfig

from accel_train.transformers import AcceleratorArguments


class SFTArguments(AcceleratorArguments, SFTConfig):
    """As users of TRL write it."""
