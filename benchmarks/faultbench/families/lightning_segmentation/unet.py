import torch
import torch.nn as nn


class DoubleConv(nn.Sequential):
    def __init__(self, cin, cout):
        super().__init__(
            nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
            nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    def __init__(self, base=12, levels=3, in_channels=1, out_channels=1):
        super().__init__()
        ch = [base * 2 ** i for i in range(levels + 1)]
        self.inc = DoubleConv(in_channels, ch[0])
        self.downs = nn.ModuleList(DoubleConv(a, b) for a, b in zip(ch, ch[1:]))
        self.ups = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in reversed(list(zip(ch, ch[1:]))))
        self.fuse = nn.ModuleList(DoubleConv(2 * a, a) for a in reversed(ch[:-1]))
        self.pool = nn.MaxPool2d(2)
        self.outc = nn.Conv2d(ch[0], out_channels, 1)

    def forward(self, x):
        #@ forward x=x
        skips = [self.inc(x)]
        for down in self.downs:
            skips.append(down(self.pool(skips[-1])))
        h = skips.pop()
        for up, fuse in zip(self.ups, self.fuse):
            h = fuse(torch.cat([skips.pop(), up(h)], dim=1))
        return self.outc(h)
