"""Small networks of several kinds, each made of its width, on which steps are measured."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Bare(nn.Module):
    """A layer of which only the activations come out."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        """Run the layer."""
        out = self.layer(x)
        return out if isinstance(out, Tensor) else out[0]


def convolution(width: int) -> nn.Module:
    """Return a block of a convolutional network."""
    parts = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()
    return nn.Sequential(*parts)


def perceptron(width: int) -> nn.Module:
    """Return a block of a network of layers alone."""
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


def transformer(width: int) -> nn.Module:
    """Return a layer of a transformer."""
    return nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)


def recurrent(width: int) -> nn.Module:
    """Return a recurrent layer."""
    return nn.GRU(width, width, batch_first=True)


class Cell(nn.Module):
    """A recurrent cell, written out, over the length of its rows."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.given, self.kept = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)

    def forward(self, x: Tensor) -> Tensor:
        """Go through the rows."""
        kept = torch.zeros_like(x[:, 0])
        for at in range(x.shape[1]):
            gate, new = (self.given(x[:, at]) + self.kept(kept)).chunk(2, -1)
            gate = torch.sigmoid(gate)
            kept = gate * kept + (1 - gate) * torch.tanh(new)
        return kept


class Coupling(nn.Module):
    """One step of a flow: half of the numbers move the other half."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width // 2, 64), nn.ReLU(), nn.Linear(64, width))

    def forward(self, x: Tensor) -> Tensor:
        """Move them, and change their places."""
        left, right = x.chunk(2, -1)
        scale, shift = self.net(left).chunk(2, -1)
        return torch.cat([right * torch.exp(torch.tanh(scale)) + shift, left], -1)


class Euler(nn.Module):
    """Twenty steps of an equation that has a small network in it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, 32), nn.Tanh(), nn.Linear(32, width))

    def forward(self, x: Tensor) -> Tensor:
        """Go on for twenty steps."""
        for _ in range(20):
            x = x + 0.05 * (self.net(x) + torch.sin(x) - 0.1 * x * x.abs())
        return x


def normed(width: int) -> nn.Module:
    """Return a layer between two norms."""
    return nn.Sequential(nn.LayerNorm(width), nn.SiLU(), nn.Linear(width, width))


class Piece(nn.Module):
    """What is called once for each piece of a row: two layers, and so many operations more."""

    def __init__(self, width: int, more: int) -> None:
        super().__init__()
        self.given, self.kept = nn.Linear(2 * width, width), nn.Linear(2 * width, width)
        self.more = more

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Go on by one piece."""
        both = torch.cat([x, state], 1)
        out = self.given(both)
        for _ in range(self.more):
            out = torch.tanh(out) * 1.01
        return torch.log_softmax(out, 1), self.kept(both)
