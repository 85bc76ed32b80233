import torch
from torch import nn
from torch.nn import functional as F


def mlp(inputs, hidden, outputs):
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        nn.LayerNorm(hidden),
        nn.GELU(),
        nn.Linear(hidden, hidden),
        nn.GELU(),
        nn.Linear(hidden, outputs),
    )


class TwoTower(nn.Module):
    """A tower for what a user has clicked, and one for items; both end on the unit sphere."""

    def __init__(self, items, dim=64, hidden=256):
        super().__init__()
        self.past = nn.Embedding(items + 1, dim, padding_idx=0)
        self.item = nn.Embedding(items, dim)
        self.attend = nn.Linear(dim, 1)
        self.user_tower = mlp(dim, hidden, dim)
        self.item_tower = mlp(dim, hidden, dim)
        nn.init.normal_(self.past.weight, std=0.05)
        nn.init.normal_(self.item.weight, std=0.05)

    def user(self, past):
        x = self.past(past)
        weight = self.attend(x).squeeze(-1).masked_fill(past == 0, -1e4).softmax(-1)
        x = (x * weight.unsqueeze(-1)).sum(1)
        #@ forward x=x
        return F.normalize(self.user_tower(x), dim=-1)

    def items(self, ids):
        return F.normalize(self.item_tower(self.item(ids)), dim=-1)

    def forward(self, past, target):
        return self.user(past), self.items(target)


def in_batch_loss(user, item, target, temperature):
    """Softmax over the items of the batch; the same item elsewhere in it is no negative."""
    logits = user @ item.t() / temperature
    same = target[:, None] == target[None, :]
    same.fill_diagonal_(False)
    logits = logits.masked_fill(same, float("-inf"))
    labels = torch.arange(len(user), device=user.device)
    return F.cross_entropy(logits, labels)
