"""Arguments of Hugging Face's trainers, their own and with our mixin, by name.

`ours` makes what users write: `class Arguments(AcceleratorArguments, SFTConfig)`.
"""

import importlib

from accel_train.transformers import AcceleratorArguments

_HOMES = {
    "TrainingArguments": "transformers",
    "Seq2SeqTrainingArguments": "transformers",
    "SentenceTransformerTrainingArguments": "sentence_transformers",
}


def theirs(name):
    """The class as it is; importing TRL takes as long as all the rest."""
    return getattr(importlib.import_module(_HOMES.get(name, "trl")), name)


def ours(name):
    """The class after our mixin; trainers save arguments, so pickle finds it here."""
    return globals().setdefault(
        f"Our{name}", type(f"Our{name}", (AcceleratorArguments, theirs(name)), {})
    )
