"""Real text that scikit-learn ships: the descriptions of its data sets, as numbers, one a character."""

from importlib import resources

import torch

from ds_training.model import LENGTH


class Text:
    """43 000 characters, 92 of them different; `characters[n]` is what number `n` stands for."""

    def __init__(self):
        files = resources.files("sklearn.datasets.descr").iterdir()
        files = sorted(
            (file for file in files if file.name.endswith(".rst")),
            key=lambda file: file.name,
        )
        text = "\n".join(file.read_text(encoding="utf-8") for file in files)
        self.characters = "".join(sorted(set(text)))
        number = {character: index for index, character in enumerate(self.characters)}
        self.numbers = torch.tensor([number[character] for character in text])

    def batch(self, seed, size):
        """`size` pieces of the text, and the same shifted by one: (size, LENGTH) each, by `seed` alone."""
        generator = torch.Generator().manual_seed(seed)
        starts = torch.randint(
            len(self.numbers) - LENGTH - 1, (size,), generator=generator
        )
        pieces = self.numbers[starts[:, None] + torch.arange(LENGTH + 1)]
        return pieces[:, :-1].contiguous(), pieces[:, 1:].contiguous()
