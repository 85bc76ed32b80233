from __future__ import annotations

import torch
from torch import nn


class ConvSubsampler(nn.Module):
    """Two strided 2-D convolutions: a quarter of the frames, a quarter of the bands."""

    def __init__(self, n_mels: int, channels: int, width: int):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, channels, kernel_size=3, stride=2, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, kernel_size=3, stride=2, padding=1),
            nn.ReLU(inplace=True),
        )
        self.project = nn.Linear(channels * (n_mels // 4), width)

    def forward(self, feats: torch.Tensor) -> torch.Tensor:
        x = self.conv(feats.unsqueeze(1))  # B, C, T/4, M/4
        return self.project(x.transpose(1, 2).flatten(2))


class AcousticModel(nn.Module):
    def __init__(self, n_mels: int, n_symbols: int, width: int = 192, channels: int = 24, layers: int = 2):
        super().__init__()
        self.subsample = ConvSubsampler(n_mels, channels, width)
        self.norm = nn.LayerNorm(width)
        self.rnn = nn.GRU(
            width, width, num_layers=layers, batch_first=True, bidirectional=True, dropout=0.1
        )
        self.head = nn.Sequential(nn.LayerNorm(2 * width), nn.Dropout(0.1), nn.Linear(2 * width, n_symbols))

    @staticmethod
    def output_lengths(lengths: torch.Tensor) -> torch.Tensor:
        return (lengths + 3) // 4

    def forward(self, feats: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        #@ forward x=feats
        x = self.norm(self.subsample(feats))
        steps = torch.arange(x.size(1), device=x.device)
        inside = steps < self.output_lengths(lengths)[:, None]
        x, _ = self.rnn(x * inside.unsqueeze(-1))
        return self.head(x).log_softmax(dim=-1)  # B, T, symbols
