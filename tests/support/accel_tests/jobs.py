"""What training programs share: real images, a digest of what was learned, and how each rank reports.

A program calls `report(train)`. Its one argument is JSON: `out`, the folder where each rank writes what
`train` gives, and the arguments of `train`.
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

import torch


def digits(batch=64, **options):
    """1,797 real images in batches; `options` are those of torch's loader."""
    from sklearn.datasets import load_digits
    from torch.utils.data import DataLoader, TensorDataset

    images, labels = load_digits(return_X_y=True)
    pairs = TensorDataset(
        torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    )
    return DataLoader(pairs, batch_size=batch, **{"shuffle": True, **options})


def network(*between):
    """Two layers for the digits, the same in every process."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(64, 32), torch.nn.ReLU(), *between, torch.nn.Linear(32, 10)
    )


def digest(tensors):
    """The values bit for bit, of a module's state or of tensors."""
    found = (
        tensors.state_dict().values()
        if isinstance(tensors, torch.nn.Module)
        else tensors
    )
    parts = [tensor.detach().cpu().contiguous().numpy().tobytes() for tensor in found]
    assert parts
    return hashlib.sha256(b"".join(parts)).hexdigest()


def report(train):
    """Train as the command line says, and write down what this rank saw."""
    asked = json.loads(sys.argv[1])
    out = Path(asked.pop("out"))
    seen = train(**asked)
    ranks = torch.distributed
    number = (
        ranks.get_rank() if ranks.is_initialized() else int(os.environ.get("RANK", "0"))
    )
    (out / f"{number}.json").write_text(json.dumps(seen))
    if ranks.is_initialized():
        ranks.destroy_process_group()
    # gloo's threads drop the last tensors with Python's lock; while Python ends this aborts (pytorch#190489).
    time.sleep(0.2)


def tiny(config, model, words, special, folder):
    """Write a model of two small layers of Llama's kind, and give a tokenizer of whole words, ours and plain.

    `special` names the tokens that the model knows by number, such as `eos_token`.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    plain = Tokenizer(
        models.WordLevel(
            {word: index for index, word in enumerate(words)}, unk_token="<unk>"
        )
    )
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    plain.add_special_tokens([word for word in words if word.startswith("<")])
    torch.manual_seed(0)
    made = config(
        vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False,
        **{f"{name}_id": words.index(word) for name, word in special.items()},
    )  # fmt: skip
    model(made).save_pretrained(folder)
    return PreTrainedTokenizerFast(
        tokenizer_object=plain, unk_token="<unk>", **special
    ), plain
