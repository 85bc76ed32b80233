"""FT-Transformer on a loan-default style table.

The table is small enough to live on the device as a whole, so a batch is just an
index_select into it; there is no loader.
"""
import argparse
import time
from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F

#@ imports

N_ROWS = 60_000
N_NUM = 14
CARDINALITIES = [2, 3, 4, 7, 12, 24, 52, 8]
WIDTH, HEADS, DEPTH = 96, 8, 3
VALID_EVERY = 4  # epochs


class FTTransformer(nn.Module):
    def __init__(self, n_num, cardinalities, width=WIDTH, heads=HEADS, depth=DEPTH, dropout=0.1):
        super().__init__()
        # one vector and one offset per numeric column, one shared table for all categories
        self.num_weight = nn.Parameter(torch.empty(n_num, width).uniform_(-1, 1) / width**0.5)
        self.num_bias = nn.Parameter(torch.zeros(n_num, width))
        offsets = torch.tensor([0] + cardinalities[:-1]).cumsum(0)
        self.register_buffer("offsets", offsets, persistent=False)
        self.cat_embed = nn.Embedding(sum(cardinalities), width)
        self.cat_bias = nn.Parameter(torch.zeros(len(cardinalities), width))
        self.cls = nn.Parameter(torch.randn(1, 1, width) / width**0.5)
        layer = nn.TransformerEncoderLayer(
            width, heads, dim_feedforward=2 * width, dropout=dropout,
            activation="gelu", batch_first=True, norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, num, cat):
        #@ forward x=num
        tokens = torch.cat(
            [
                self.cls.expand(num.shape[0], -1, -1),
                num.unsqueeze(-1) * self.num_weight + self.num_bias,
                self.cat_embed(cat + self.offsets) + self.cat_bias,
            ],
            dim=1,
        )
        return self.head(self.encoder(tokens)[:, 0]).squeeze(-1)


def make_table(n_rows, gen):
    """Skewed amounts, correlated ratios, missing cells, and a label with interactions."""
    mixing = torch.randn(6, N_NUM, generator=gen) / 6**0.5
    latent = torch.randn(n_rows, 6, generator=gen)
    num = latent @ mixing + 0.5 * torch.randn(n_rows, N_NUM, generator=gen)
    num[:, :5] = num[:, :5].exp()
    cat = torch.stack(
        [(torch.rand(n_rows, generator=gen) ** 1.7 * c).long() for c in CARDINALITIES], dim=1
    )
    effects = [torch.randn(c, generator=gen) for c in CARDINALITIES]
    logit = (
        1.2 * latent[:, 0]
        + latent[:, 1] * effects[3][cat[:, 3]]
        + torch.sin(2 * latent[:, 2]) * (cat[:, 0] * 2 - 1)
        + 0.5 * sum(e[cat[:, j]] for j, e in enumerate(effects))
        - 1.0
    )
    label = torch.bernoulli(torch.sigmoid(logit), generator=gen)
    num[torch.rand(num.shape, generator=gen) < 0.03] = float("nan")
    return num, cat, label


def fit_quantiles(num, n=200):
    return torch.nanquantile(num[:20_000], torch.linspace(0, 1, n), dim=0).T.contiguous()


def to_normal(num, knots):
    """Quantile transform to a standard normal; a missing cell becomes the median."""
    rank = torch.searchsorted(knots, num.T.contiguous()).T / knots.shape[1]
    normal = torch.special.ndtri(rank.clamp(1e-3, 1 - 1e-3))
    return torch.where(num.isnan(), torch.zeros_like(normal), normal).contiguous()


def prepare(device, seed):
    gen = torch.Generator().manual_seed(seed)
    num, cat, label = make_table(N_ROWS + 2_000, gen)
    num = to_normal(num, fit_quantiles(num[:N_ROWS]))
    move = partial(torch.Tensor.to, device=device)
    train = tuple(move(t[:N_ROWS]) for t in (num, cat, label))
    valid = tuple(move(t[N_ROWS:]) for t in (num, cat, label))
    return train, valid


def make_optimizer(model, lr, weight_decay=1e-4):
    def decays(name, p):
        return p.ndim > 1 and "bias" not in name and "embed" not in name and "num_" not in name

    named = list(model.named_parameters())
    return torch.optim.AdamW(
        [
            {"params": [p for n, p in named if decays(n, p)], "weight_decay": weight_decay},
            {"params": [p for n, p in named if not decays(n, p)], "weight_decay": 0.0},
        ],
        lr=lr,
    )


def epoch_batches(n_rows, batch_size, device):
    return torch.randperm(n_rows, device=device)[: n_rows // batch_size * batch_size].split(batch_size)


def take(table, rows):
    return tuple(column.index_select(0, rows) for column in table)


def train_step(model, opt, num, cat, label):
    loss = F.binary_cross_entropy_with_logits(model(num, cat), label)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    return loss.detach()


def auc(score, label):
    ranks = score.argsort().argsort().float() + 1
    pos = label.sum()
    return (ranks @ label - pos * (pos + 1) / 2) / (pos * (label.numel() - pos))


@torch.no_grad()
def validate(model, table, chunk=500):
    model.eval()
    num, cat, label = table
    score = torch.cat([model(n, c) for n, c in zip(num.split(chunk), cat.split(chunk))])
    model.train()
    return F.binary_cross_entropy_with_logits(score, label).item(), auc(score, label).item()


def fit(model, opt, train, valid, batch_size, report_every):
    device = train[0].device
    step, epoch = 0, 0
    total = torch.zeros((), device=device)
    t0 = time.time()
    model.train()
    #@ setup
    while True:
        for rows in epoch_batches(len(train[0]), batch_size, device):
            num, cat, label = take(train, rows)
            loss = train_step(model, opt, num, cat, label)
            total += loss
            step += 1
            if step % report_every == 0:
                dt, t0 = time.time() - t0, time.time()
                print(f"[{step:>7}] bce {total.item() / report_every:.4f}  "
                      f"{report_every * batch_size / dt:,.0f} rows/s", flush=True)
                total.zero_()
            #@ step loss=loss model=model batch=num,cat,label opt=opt index=step
        epoch += 1
        if epoch % VALID_EVERY == 0:
            bce, area = validate(model, valid)
            print(f"epoch {epoch}: valid bce {bce:.4f}, auc {area:.4f}", flush=True)
        #@ epoch


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--scale", type=float, default=1.0)
    p.add_argument("--rows-per-step", type=int, default=128)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--report-every", type=int, default=100)
    p.add_argument("--seed", type=int, default=0)
    a = p.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(a.seed)
    train, valid = prepare(device, a.seed)
    model = FTTransformer(N_NUM, CARDINALITIES).to(device)
    opt = make_optimizer(model, a.lr)
    print(f"{len(train[0]):,} rows, {N_NUM} numeric + {len(CARDINALITIES)} categorical columns, "
          f"{train[2].mean().item():.1%} positive, "
          f"{sum(p.numel() for p in model.parameters()):,} weights on {device}", flush=True)
    fit(model, opt, train, valid, max(1, round(a.rows_per_step * a.scale)), a.report_every)


if __name__ == "__main__":
    main()
