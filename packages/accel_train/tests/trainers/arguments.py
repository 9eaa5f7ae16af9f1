"""Arguments of Hugging Face's trainers, their own and with our mixin, by name.

`ours` makes what users write: `class Arguments(AcceleratorArguments, SFTConfig)`.
"""

from __future__ import annotations

import importlib

from accel_train.transformers import AcceleratorArguments

_HOMES = {
    "TrainingArguments": "transformers",
    "Seq2SeqTrainingArguments": "transformers",
    "SentenceTransformerTrainingArguments": "sentence_transformers",
    "SFTConfig": "trl",
    "DPOConfig": "trl",
    "GRPOConfig": "trl",
}


def theirs(name: str) -> type:
    """The class as it is."""
    kind: type = getattr(importlib.import_module(_HOMES[name]), name)
    return kind


def ours(name: str) -> type:
    """The class after our mixin; trainers save arguments, so pickle finds it here."""
    made: type = globals().setdefault(
        f"Our{name}", type(f"Our{name}", (AcceleratorArguments, theirs(name)), {})
    )
    return made
