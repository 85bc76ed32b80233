"""
A tiny GPT over characters. Everything in one file, no dependencies but torch and numpy.
$ python main.py
"""
import argparse
import math
import time

import numpy as np
import torch
import torch.nn as nn
from torch.nn import functional as F

#@ imports

ap = argparse.ArgumentParser()
ap.add_argument('--scale', type=float, default=1.0)
ap.add_argument('--seed', type=int, default=1337)
args = ap.parse_args()

# --- knobs
block_size = 128
batch_size = max(1, int(16 * args.scale))
n_layer = 3
n_head = 4
n_embd = 128
dropout = 0.0
peak_lr, floor_lr = 1e-3, 1e-4
warmup, decay_until = 200, 20000
weight_decay = 0.1
grad_clip = 1.0
log_every = 100
eval_every = 1000
eval_batches = 8
device = 'cuda' if torch.cuda.is_available() else 'cpu'

torch.manual_seed(args.seed)
rng = np.random.default_rng(args.seed)

# --- the corpus: a little mock play, good enough to overfit on
def write_play(n_lines=25000):
    roles = np.array(['DUKE', 'FOOL', 'MARGERY', 'FIRST CLERK', 'GHOST', 'HELENA'])
    syll = ['ba', 'lor', 'the', 'mi', 'an', 'sir', 'ou', 'ven', 'dre', 'is', 'hath', 'ko', 'wy', 'ne', 'un', 'tle']
    words = np.array(sorted({''.join(rng.choice(syll, size=k)) for k in rng.integers(1, 4, size=900)}))
    zipf = 1.0 / np.arange(2, len(words) + 2)
    stream = rng.choice(words, size=n_lines * 8, p=zipf / zipf.sum()).reshape(n_lines, 8)
    lines = [' '.join(row).capitalize() + '.' for row in stream]
    who = rng.choice(roles, size=n_lines // 4)
    return '\n\n'.join(f'{w}:\n' + '\n'.join(lines[4*i:4*i+4]) for i, w in enumerate(who))

text = write_play()
chars = sorted(set(text))
vocab_size = len(chars)
stoi = {c: i for i, c in enumerate(chars)}
tokens = np.array([stoi[c] for c in text], dtype=np.uint16)
cut = int(0.95 * len(tokens))
splits = {'train': tokens[:cut], 'val': tokens[cut:]}
print(f'{len(text):,} characters, {vocab_size} distinct')

span = np.arange(block_size + 1)

def get_batch(split):
    data = splits[split]
    starts = rng.integers(0, len(data) - block_size - 1, size=batch_size)
    window = data[starts[:, None] + span].astype(np.int64)
    x, y = window[:, :-1], window[:, 1:]
    #@ batch arrays=x,y
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    if device == 'cuda':
        x = x.contiguous().pin_memory().to(device, non_blocking=True)
        y = y.contiguous().pin_memory().to(device, non_blocking=True)
    return x, y

# --- the model
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.out = nn.Linear(n_embd, n_embd, bias=False)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, n_head, C // n_head).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout if self.training else 0.0)
        return self.out(y.transpose(1, 2).reshape(B, T, C))

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1 = nn.LayerNorm(n_embd)
        self.attn = Attention()
        self.ln2 = nn.LayerNorm(n_embd)
        self.mlp = nn.Sequential(
            nn.Linear(n_embd, 4 * n_embd),
            nn.GELU(approximate='tanh'),
            nn.Linear(4 * n_embd, n_embd),
        )

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))

class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(vocab_size, n_embd)
        self.pos = nn.Parameter(0.02 * torch.randn(block_size, n_embd))
        self.blocks = nn.Sequential(*[Block() for _ in range(n_layer)])
        self.ln = nn.LayerNorm(n_embd)
        self.head = nn.Linear(n_embd, vocab_size, bias=False)
        self.apply(self._init)
        self.head.weight = self.tok.weight

    @staticmethod
    def _init(m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.02)
            if getattr(m, 'bias', None) is not None:
                nn.init.zeros_(m.bias)

    def forward(self, idx, targets=None):
        #@ forward x=idx
        x = self.tok(idx) + self.pos[:idx.size(1)]
        logits = self.head(self.ln(self.blocks(x)))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())

@torch.no_grad()
def estimate_loss():
    model.eval()
    total = sum(model(*get_batch('val'))[1] for _ in range(eval_batches))
    model.train()
    return total.item() / eval_batches

def lr_at(it):
    if it < warmup:
        return peak_lr * (it + 1) / warmup
    t = min(1.0, (it - warmup) / (decay_until - warmup))
    return floor_lr + 0.5 * (1 + math.cos(math.pi * t)) * (peak_lr - floor_lr)

model = GPT().to(device)
print(f'{sum(p.numel() for p in model.parameters()) / 1e6:.2f}M parameters on {device}')

matrices = [p for p in model.parameters() if p.dim() >= 2]
vectors = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW(
    [{'params': matrices, 'weight_decay': weight_decay}, {'params': vectors, 'weight_decay': 0.0}],
    lr=peak_lr, betas=(0.9, 0.99), fused=(device == 'cuda'))

# --- train, forever
it = 0
x, y = get_batch('train')
t0 = time.time()
#@ setup
while True:
    for group in optimizer.param_groups:
        group['lr'] = lr_at(it)

    logits, loss = model(x, y)
    xb, yb = x, y
    x, y = get_batch('train')  # the next one, while the device is still busy with this one
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()

    if it % log_every == 0:
        now = time.time()
        print(f'iter {it:6d} | loss {loss.item():.4f} | {1000 * (now - t0) / log_every:.1f} ms/iter', flush=True)
        t0 = now
    if it and it % eval_every == 0:
        print(f'iter {it:6d} | val loss {estimate_loss():.4f}', flush=True)
    it += 1
    #@ step loss=loss model=model batch=xb,yb opt=optimizer index=it
