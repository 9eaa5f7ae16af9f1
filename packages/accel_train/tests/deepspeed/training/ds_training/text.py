"""Real text that scikit-learn ships: the descriptions of its data sets, as numbers, one a character."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

import torch

__all__ = ["Text"]


@dataclass(frozen=True)
class Text:
    """A text as numbers; `characters[n]` is what number `n` stands for."""

    numbers: torch.Tensor
    characters: str

    @classmethod
    def read(cls):
        """All descriptions, in the order of their names: 43 000 characters, 92 of them different."""
        folder = resources.files("sklearn.datasets.descr")
        files = [file for file in folder.iterdir() if file.name.endswith(".rst")]
        files.sort(key=lambda file: file.name)
        text = "\n".join(file.read_text(encoding="utf-8") for file in files)
        characters = "".join(sorted(set(text)))
        number = {character: index for index, character in enumerate(characters)}
        return cls(torch.tensor([number[character] for character in text]), characters)

    def batch(self, seed, size, length):
        """`size` pieces of the text, and the same shifted by one: (size, length) each, by `seed` alone."""
        generator = torch.Generator().manual_seed(seed)
        starts = torch.randint(len(self.numbers) - length - 1, (size,), generator=generator)
        pieces = self.numbers[starts[:, None] + torch.arange(length + 1)]
        return pieces[:, :-1].contiguous(), pieces[:, 1:].contiguous()
