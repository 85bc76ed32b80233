"""Variational autoencoder on 28x28 digit-like images."""
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

#@ imports

SCALE = 1.0
if "--scale" in sys.argv:
    SCALE = float(sys.argv[sys.argv.index("--scale") + 1])

SEED = 1
BATCH = max(8, int(256 * SCALE))
N_TRAIN = 12000
N_TEST = 500
Z = 20
LR = 1e-3
LOG_EVERY = 100
TEST_EVERY = 10      # epochs

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(SEED)


def draw_digits(n):
    """Seven-segment digits, jittered and blurred, as uint8 [n, 28, 28]."""
    segs = [  # y0, y1, x0, x1
        (4, 7, 8, 20), (5, 14, 18, 21), (14, 24, 18, 21), (22, 25, 8, 20),
        (14, 24, 7, 10), (5, 14, 7, 10), (13, 16, 8, 20),
    ]
    table = ["012345", "12", "01643", "01623", "5612", "05623", "056234", "012", "0123456", "012356"]
    glyphs = torch.zeros(10, 28, 28)
    for d, lit in enumerate(table):
        for s in lit:
            y0, y1, x0, x1 = segs[int(s)]
            glyphs[d, y0:y1, x0:x1] = 1.0
    y = torch.randint(0, 10, (n,))
    x = glyphs[y]
    theta = torch.zeros(n, 2, 3)
    ang = torch.randn(n) * 0.15
    zoom = 1.0 + 0.1 * torch.randn(n)
    theta[:, 0, 0] = torch.cos(ang) * zoom
    theta[:, 0, 1] = -torch.sin(ang)
    theta[:, 1, 0] = torch.sin(ang)
    theta[:, 1, 1] = torch.cos(ang) * zoom
    theta[:, :, 2] = torch.randn(n, 2) * 0.1
    grid = F.affine_grid(theta, (n, 1, 28, 28), align_corners=False)
    x = F.grid_sample(x[:, None], grid, align_corners=False)
    x = F.avg_pool2d(x, 3, stride=1, padding=1)
    return (x[:, 0] * 255).clamp(0, 255).to(torch.uint8)


class VAE(nn.Module):
    def __init__(self, z):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Linear(784, 512), nn.ReLU(),
            nn.Linear(512, 400), nn.ReLU(),
        )
        self.mu = nn.Linear(400, z)
        self.logvar = nn.Linear(400, z)
        self.dec = nn.Sequential(
            nn.Linear(z, 400), nn.ReLU(),
            nn.Linear(400, 512), nn.ReLU(),
            nn.Linear(512, 784),
        )

    def forward(self, x):
        #@ forward x=x
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu)
        return self.dec(z), mu, logvar


def elbo(logits, x, mu, logvar):
    bce = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return (bce + kld) / x.size(0)


train_x = draw_digits(N_TRAIN).to(device)
test_x = draw_digits(N_TEST).to(device)
print("train", tuple(train_x.shape), train_x.dtype, "test", tuple(test_x.shape))

vae = VAE(Z).to(device)
optimizer = torch.optim.Adam(vae.parameters(), lr=LR)

epoch = 0
step = 0
t0 = time.time()
last_print = 0.0
#@ setup
while True:
    epoch += 1
    vae.train()
    perm = torch.randperm(N_TRAIN, device=device)
    total = torch.zeros((), device=device)
    n_batches = N_TRAIN // BATCH
    for b in range(n_batches):
        idx = perm[b * BATCH:(b + 1) * BATCH]
        x = train_x[idx].float().div_(255).view(-1, 784)
        optimizer.zero_grad(set_to_none=True)
        recon, mu, logvar = vae(x)
        loss = elbo(recon, x, mu, logvar)
        loss.backward()
        optimizer.step()
        total += loss.detach()
        step += 1
        if step % LOG_EVERY == 0:
            print(f"step {step} epoch {epoch} elbo {-loss.item():.2f} ({time.time() - t0:.1f}s)", flush=True)
        #@ step loss=loss model=vae batch=x opt=optimizer index=step

    if epoch % TEST_EVERY == 0:
        vae.eval()
        with torch.no_grad():
            xt = test_x.float().div(255).view(-1, 784)
            out, m, lv = vae(xt)
            print(f"== epoch {epoch} test elbo {-elbo(out, xt, m, lv).item():.2f}", flush=True)
    elif time.time() - last_print > 2:
        last_print = time.time()
        print(f"epoch {epoch} mean elbo {-total.item() / n_batches:.2f}", flush=True)
    #@ epoch
