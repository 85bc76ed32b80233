"""
A small DDPM in one file (Ho et al. 2020): a UNet learns to predict the noise that was mixed into an image.

The data set is 16384 drawings of 32x32 pixels with a few coloured discs, rings and boxes. It fits on the device
whole, as bytes, so a batch is an index into it and there is no loader. Training runs until Ctrl-C.
"""
import argparse
import copy
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

#@ imports

p = argparse.ArgumentParser()
p.add_argument("--scale", type=float, default=1.0)
p.add_argument("--bs", type=int, default=32)
p.add_argument("--ch", type=int, default=24)
p.add_argument("--T", type=int, default=1000)
p.add_argument("--lr", type=float, default=3e-4)
p.add_argument("--ema", type=float, default=0.999)
args = p.parse_args()

dev = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
bs = max(1, round(args.bs * args.scale))


# ---------------------------------------------------------------- data

def draw_images(n, size=32, shapes=3):
    """n pictures, uint8 (n, 3, size, size): a plain background, then one shape over the other."""
    ax = torch.linspace(-1, 1, size, device=dev)
    yy, xx = ax[:, None], ax[None, :]
    img = torch.rand(n, 3, 1, 1, device=dev).mul(0.4).expand(n, 3, size, size).clone()
    for _ in range(shapes):
        cx, cy = torch.rand(2, n, 1, 1, device=dev).mul(1.4).sub(0.7)
        r = torch.rand(n, 1, 1, device=dev).mul(0.35).add(0.15)
        kind = torch.randint(3, (n, 1, 1), device=dev)
        round_ = ((xx - cx) ** 2 + (yy - cy) ** 2).sqrt() / r          # 1 on the circle
        square = torch.maximum((xx - cx).abs(), (yy - cy).abs()) / r    # 1 on the box
        dist = torch.where(kind == 0, round_, torch.where(kind == 1, (round_ - 0.7).abs() / 0.3, square))
        mask = torch.sigmoid((1 - dist) * 20)[:, None]                  # soft edge
        colour = torch.rand(n, 3, 1, 1, device=dev).mul(0.7).add(0.3)
        img = img * (1 - mask) + colour * mask
    return (img * 255).byte()


# ---------------------------------------------------------------- model

def timestep_embedding(t, dim):
    freqs = torch.exp(torch.arange(dim // 2, device=t.device) * (-math.log(10000) / (dim // 2)))
    ang = t[:, None].float() * freqs
    return torch.cat([ang.cos(), ang.sin()], dim=1)


class Res(nn.Module):
    """GroupNorm-SiLU-conv twice; the time embedding shifts the features in between."""

    def __init__(self, cin, cout, emb):
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(8, cin), nn.Conv2d(cin, cout, 3, padding=1)
        self.emb = nn.Linear(emb, cout)
        self.n2, self.c2 = nn.GroupNorm(8, cout), nn.Conv2d(cout, cout, 3, padding=1)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()
        nn.init.zeros_(self.c2.weight)

    def forward(self, x, e):
        h = self.c1(F.silu(self.n1(x)))
        h = h + self.emb(e)[:, :, None, None]
        h = self.c2(F.silu(self.n2(h)))
        return self.skip(x) + h


class Attn(nn.Module):
    def __init__(self, c, heads=4):
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = nn.GroupNorm(8, c), nn.Conv2d(c, 3 * c, 1), nn.Conv2d(c, c, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, 3, self.heads, c // self.heads, h * w).transpose(3, 4).unbind(1)
        y = F.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(2, 3).reshape(b, c, h, w))


class UNet(nn.Module):
    """32 -> 16 -> 8 and back; attention only at 8x8."""

    def __init__(self, ch):
        super().__init__()
        emb, c1, c2, c3 = 4 * ch, ch, 2 * ch, 4 * ch
        self.ch = ch
        self.time = nn.Sequential(nn.Linear(ch, emb), nn.SiLU(), nn.Linear(emb, emb), nn.SiLU())
        self.stem = nn.Conv2d(3, c1, 3, padding=1)
        self.d1, self.down1 = Res(c1, c1, emb), nn.Conv2d(c1, c1, 3, stride=2, padding=1)
        self.d2, self.down2 = Res(c1, c2, emb), nn.Conv2d(c2, c2, 3, stride=2, padding=1)
        self.d3 = Res(c2, c3, emb)
        self.mid1, self.attn, self.mid2 = Res(c3, c3, emb), Attn(c3), Res(c3, c3, emb)
        self.u3, self.up2 = Res(c3 + c3, c2, emb), nn.Conv2d(c2, c2, 3, padding=1)
        self.u2, self.up1 = Res(c2 + c2, c1, emb), nn.Conv2d(c1, c1, 3, padding=1)
        self.u1 = Res(c1 + c1, c1, emb)
        self.head = nn.Sequential(nn.GroupNorm(8, c1), nn.SiLU(), nn.Conv2d(c1, 3, 3, padding=1))

    def forward(self, x, t):
        #@ forward x=x
        e = self.time(timestep_embedding(t, self.ch))
        h1 = self.d1(self.stem(x), e)
        h2 = self.d2(self.down1(h1), e)
        h3 = self.d3(self.down2(h2), e)
        h = self.mid2(self.attn(self.mid1(h3, e)), e)
        h = self.u3(torch.cat([h, h3], 1), e)
        h = self.up2(F.interpolate(h, scale_factor=2.0, mode="nearest"))
        h = self.u2(torch.cat([h, h2], 1), e)
        h = self.up1(F.interpolate(h, scale_factor=2.0, mode="nearest"))
        h = self.u1(torch.cat([h, h1], 1), e)
        return self.head(h)


# ---------------------------------------------------------------- diffusion

# cosine schedule (Nichol & Dhariwal 2021), tables live on the device
s = torch.arange(args.T + 1, dtype=torch.float64) / args.T
abar = torch.cos((s + 0.008) / 1.008 * math.pi / 2) ** 2
abar = (abar / abar[0]).clamp(min=1e-5)[1:].float().to(dev)
sqrt_abar, sqrt_one_minus = abar.sqrt(), (1 - abar).sqrt()


def q_sample(x0, t, noise):
    """x_t given x_0: sqrt(abar) x_0 + sqrt(1 - abar) eps"""
    return sqrt_abar[t][:, None, None, None] * x0 + sqrt_one_minus[t][:, None, None, None] * noise


@torch.no_grad()
def ddim_sample(net, n, steps=20):
    """Deterministic sampling on a coarse grid of timesteps."""
    x = torch.randn(n, 3, 32, 32, device=dev)
    grid = torch.linspace(args.T - 1, 0, steps).long().tolist()
    for t, t_next in zip(grid, grid[1:] + [None]):
        eps = net(x, torch.full((n,), t, device=dev))
        x0 = ((x - sqrt_one_minus[t] * eps) / sqrt_abar[t]).clamp(-1, 1)
        x = x0 if t_next is None else sqrt_abar[t_next] * x0 + sqrt_one_minus[t_next] * eps
    return x


@torch.no_grad()
def ema_update(avg, new, decay):
    torch._foreach_lerp_(list(avg.parameters()), list(new.parameters()), 1 - decay)


# ---------------------------------------------------------------- train

images = torch.cat([draw_images(2048) for _ in range(8)])
net = UNet(args.ch).to(dev)
ema = copy.deepcopy(net).eval().requires_grad_(False)
opt = torch.optim.AdamW(net.parameters(), lr=args.lr, weight_decay=0.0)
print(f"{len(images)} images on {dev}, {sum(w.numel() for w in net.parameters()) / 1e6:.2f}M parameters, batch {bs}")

log_every, sample_every = 100, 2000
avg_loss = torch.zeros((), device=dev)
step, t0 = 0, time.time()
#@ setup
while True:
    idx = torch.randint(len(images), (bs,), device=dev)
    x0 = images[idx].float() / 127.5 - 1                      # bytes -> [-1, 1]
    t = torch.randint(args.T, (bs,), device=dev)
    noise = torch.randn_like(x0)
    eps = net(q_sample(x0, t, noise), t)
    loss = F.mse_loss(eps, noise)

    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    ema_update(ema, net, min(args.ema, (1 + step) / (10 + step)))  # short memory at first

    avg_loss += loss.detach()
    step += 1
    if step % log_every == 0:
        mean, now = avg_loss.item() / log_every, time.time()
        print(f"step {step:6d}  loss {mean:.4f}  {1000 * (now - t0) / log_every:.1f} ms/step", flush=True)
        avg_loss.zero_()
        t0 = now
    if step % sample_every == 0:
        grid = ddim_sample(ema, 16).add(1).mul(127.5).byte().cpu()
        torch.save({"step": step, "ema": ema.state_dict(), "samples": grid}, "ddpm_shapes.pt")
        print(f"step {step:6d}  sampled {len(grid)} images, mean pixel {grid.float().mean():.1f}", flush=True)
    #@ step loss=loss model=net batch=x0,t opt=opt index=step
