"""A compact pre-activation residual network."""
from __future__ import annotations

import torch
from torch import Tensor, nn


def conv3x3(c_in: int, c_out: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(c_in, c_out, kernel_size=3, stride=stride, padding=1, bias=False)


class PreActBlock(nn.Module):
    def __init__(self, c_in: int, c_out: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(c_in)
        self.conv1 = conv3x3(c_in, c_out, stride)
        self.norm2 = nn.BatchNorm2d(c_out)
        self.conv2 = conv3x3(c_out, c_out)
        self.act = nn.ReLU(inplace=True)
        same = stride == 1 and c_in == c_out
        self.project = None if same else nn.Conv2d(c_in, c_out, kernel_size=1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out = self.act(self.norm1(x))
        shortcut = x if self.project is None else self.project(out)
        out = self.conv1(out)
        out = self.conv2(self.act(self.norm2(out)))
        return out + shortcut


class SmallResNet(nn.Module):
    def __init__(self, num_classes: int, widths: tuple[int, ...] = (24, 48, 96), depth: int = 1) -> None:
        super().__init__()
        self.stem = conv3x3(3, widths[0])
        self.stages = self._make_stages(widths, depth)
        self.norm = nn.BatchNorm2d(widths[-1])
        self.head = nn.Linear(widths[-1], num_classes)
        self._init_weights()

    @staticmethod
    def _make_stages(widths: tuple[int, ...], depth: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        c_in = widths[0]
        for s, width in enumerate(widths):
            for d in range(depth):
                layers.append(PreActBlock(c_in, width, stride=2 if s > 0 and d == 0 else 1))
                c_in = width
        return nn.Sequential(*layers)

    def _init_weights(self) -> None:
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(self.head.bias)

    def features(self, x: Tensor) -> Tensor:
        out = self.stages(self.stem(x))
        return torch.relu(self.norm(out)).mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        #@ forward x=x
        return self.head(self.features(x))

    def param_groups(self, weight_decay: float) -> list[dict]:
        decay = [p for p in self.parameters() if p.ndim > 1]
        rest = [p for p in self.parameters() if p.ndim <= 1]
        return [{"params": decay, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]
