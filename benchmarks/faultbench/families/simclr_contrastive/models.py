import torch.nn as nn
import torch.nn.functional as F


class BasicBlock(nn.Module):
    def __init__(self, in_planes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = nn.Identity()
        if stride != 1 or in_planes != planes:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_planes, planes, 1, stride=stride, bias=False),
                nn.BatchNorm2d(planes),
            )

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = self.bn2(self.conv2(out))
        return F.relu(out + self.shortcut(x), inplace=True)


class ResNetEncoder(nn.Module):
    """A CIFAR-style ResNet (3x3 stem, no max pooling)."""

    def __init__(self, width=16, depths=(1, 1, 1, 1)):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        )
        blocks, planes = [], width
        for stage, depth in enumerate(depths):
            for i in range(depth):
                out = width * 2**stage
                blocks.append(BasicBlock(planes, out, stride=2 if stage > 0 and i == 0 else 1))
                planes = out
        self.layers = nn.Sequential(*blocks)
        self.out_dim = planes

    def forward(self, x):
        return self.layers(self.stem(x)).mean(dim=(2, 3))


class SimCLR(nn.Module):
    """Encoder f and projection head g; returns z = g(f(x)) on the unit sphere."""

    def __init__(self, width=16, proj_hidden=256, proj_dim=64):
        super().__init__()
        self.encoder = ResNetEncoder(width)
        d = self.encoder.out_dim
        self.projector = nn.Sequential(
            nn.Linear(d, proj_hidden, bias=False),
            nn.BatchNorm1d(proj_hidden),
            nn.ReLU(inplace=True),
            nn.Linear(proj_hidden, proj_dim),
        )

    def forward(self, views):
        #@ forward x=views
        h = self.encoder(views)
        return F.normalize(self.projector(h), dim=1)
