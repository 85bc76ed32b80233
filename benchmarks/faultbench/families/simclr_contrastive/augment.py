"""The two views of SimCLR, made on the device for the whole batch at once.

Every image gets its own random parameters; images are float tensors (N, 3, H, W) in [0, 1].
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class RandomResizedCropFlip(nn.Module):
    """Random crop, resize and horizontal flip as one bilinear warp."""

    def __init__(self, scale=(0.2, 1.0), ratio=(3 / 4, 4 / 3)):
        super().__init__()
        self.scale = scale
        self.log_ratio = (math.log(ratio[0]), math.log(ratio[1]))

    def forward(self, x):
        n = x.size(0)
        area, ratio, cx, cy, flip = torch.rand(5, n, device=x.device)
        area = self.scale[0] + (self.scale[1] - self.scale[0]) * area
        ratio = torch.exp(self.log_ratio[0] + (self.log_ratio[1] - self.log_ratio[0]) * ratio)
        w = (area * ratio).sqrt().clamp(max=1.0)
        h = (area / ratio).sqrt().clamp(max=1.0)
        sign = torch.where(flip < 0.5, -1.0, 1.0)

        theta = torch.zeros(n, 2, 3, device=x.device)
        theta[:, 0, 0] = w * sign
        theta[:, 1, 1] = h
        theta[:, 0, 2] = (2 * cx - 1) * (1 - w)
        theta[:, 1, 2] = (2 * cy - 1) * (1 - h)
        grid = F.affine_grid(theta, list(x.shape), align_corners=False)
        return F.grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


class ColorDistortion(nn.Module):
    """Brightness, contrast and saturation jitter, then sometimes grayscale."""

    def __init__(self, strength=0.5, p_jitter=0.8, p_gray=0.2):
        super().__init__()
        self.amount = 0.8 * strength
        self.p_jitter = p_jitter
        self.p_gray = p_gray
        self.register_buffer("luma", torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1))

    def gray(self, x):
        return (x * self.luma).sum(dim=1, keepdim=True)

    def forward(self, x):
        n = x.size(0)
        factors = 1 + self.amount * (2 * torch.rand(3, n, 1, 1, 1, device=x.device) - 1)
        brightness, contrast, saturation = factors

        y = x * brightness
        mean = self.gray(y).mean(dim=(2, 3), keepdim=True)
        y = torch.lerp(mean.expand_as(y), y, contrast)
        y = torch.lerp(self.gray(y).expand_as(y), y, saturation)
        y = y.clamp(0, 1)

        coin = torch.rand(2, n, 1, 1, 1, device=x.device)
        y = torch.where(coin[0] < self.p_jitter, y, x)
        return torch.where(coin[1] < self.p_gray, self.gray(y).expand_as(y), y)


class RandomGaussianBlur(nn.Module):
    """3x3 blur whose sigma is drawn per batch, applied to half of the images."""

    def __init__(self, sigma=(0.1, 2.0), p=0.5):
        super().__init__()
        self.sigma = sigma
        self.p = p
        self.register_buffer("offsets", torch.tensor([-1.0, 0.0, 1.0]))

    def forward(self, x):
        sigma = self.sigma[0] + (self.sigma[1] - self.sigma[0]) * torch.rand(1, device=x.device)
        k = torch.softmax(-0.5 * (self.offsets / sigma) ** 2, dim=0)
        kernel = torch.outer(k, k).expand(x.size(1), 1, 3, 3)
        blurred = F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), kernel, groups=x.size(1))
        keep = torch.rand(x.size(0), 1, 1, 1, device=x.device) >= self.p
        return torch.where(keep, x, blurred)


class Normalize(nn.Module):
    def __init__(self, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25)):
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1))

    def forward(self, x):
        return (x - self.mean) / self.std


def simclr_augmentation(strength=0.5):
    return nn.Sequential(RandomResizedCropFlip(), ColorDistortion(strength), RandomGaussianBlur(), Normalize())
