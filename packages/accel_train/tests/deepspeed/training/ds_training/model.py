"""A transformer that guesses the next character: two layers, 64 wide, plain torch.

Attention is written out, since torch has kernels of its own for it on some device types.
"""

import torch
from torch import nn

LAYERS, WIDTH, HEADS, LENGTH, DROPOUT = 2, 64, 4, 32, 0.1


class Embedding(nn.Module):
    """Characters and their places: (batch, length) numbers to (batch, length, width)."""

    def __init__(self, characters):
        super().__init__()
        self.character = nn.Embedding(characters, WIDTH)
        self.place = nn.Embedding(LENGTH, WIDTH)

    def forward(self, numbers):
        places = torch.arange(numbers.shape[1], device=numbers.device)
        return self.character(numbers) + self.place(places)


class Block(nn.Module):
    """Attention to what came before, then a small network; (batch, length, width) to the same."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.asked, self.answered = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = (
            nn.Linear(WIDTH, 4 * WIDTH),
            nn.Linear(4 * WIDTH, WIDTH),
        )
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, hidden):
        hidden = hidden + self.dropout(self.attention(self.first(hidden)))
        return hidden + self.dropout(
            self.narrow(nn.functional.gelu(self.wide(self.second(hidden))))
        )

    def attention(self, hidden):
        batch, length, _ = hidden.shape
        split = (
            self.asked(hidden)
            .view(batch, length, 3, HEADS, WIDTH // HEADS)
            .permute(2, 0, 3, 1, 4)
        )
        query, key, value = split[0], split[1], split[2]
        scores = query @ key.transpose(-2, -1) * (WIDTH // HEADS) ** -0.5
        later = torch.ones(length, length, dtype=torch.bool, device=hidden.device).triu(
            1
        )
        weights = scores.masked_fill(later, float("-inf")).softmax(-1)
        return self.answered(
            (weights @ value).transpose(1, 2).reshape(batch, length, WIDTH)
        )


class Head(nn.Module):
    """How likely each character is next: (batch, length, width) to (batch, length, characters)."""

    def __init__(self, characters):
        super().__init__()
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, characters)

    def forward(self, hidden):
        return self.out(self.norm(hidden))


def layers(characters):
    """The parts in their order, as `PipelineModule` takes them."""
    return [Embedding(characters), *(Block() for _ in range(LAYERS)), Head(characters)]


def loss(answers, targets):
    """Mean cross-entropy of (batch, length, characters) answers, in float32."""
    return nn.functional.cross_entropy(answers.flatten(0, 1).float(), targets.flatten())


class Transformer(nn.Module):
    """The parts in one module, which gives the loss; with `checkpoint`, blocks run inside that function."""

    def __init__(self, characters, checkpoint=None):
        super().__init__()
        self.layers = nn.ModuleList(layers(characters))
        self.checkpoint = checkpoint

    def forward(self, numbers, targets):
        hidden = numbers
        for layer in self.layers:
            again = callable(self.checkpoint) and isinstance(layer, Block)
            hidden = self.checkpoint(layer, hidden) if again else layer(hidden)
        return loss(hidden, targets)
