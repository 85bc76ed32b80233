import torch
import torch.nn as nn
import torch.nn.functional as F


class NTXentLoss(nn.Module):
    """Normalized temperature-scaled cross entropy over 2N views.

    Rows i and i + N of ``z`` are the two views of image i; all the others are negatives.
    """

    def __init__(self, batch_size, temperature=0.5):
        super().__init__()
        self.temperature = temperature
        n = batch_size
        self.register_buffer("itself", torch.eye(2 * n, dtype=torch.bool))
        self.register_buffer("positive", torch.arange(2 * n).roll(n))

    def forward(self, z):
        sim = z @ z.t() / self.temperature
        sim = sim.masked_fill(self.itself, float("-inf"))
        return F.cross_entropy(sim, self.positive)
