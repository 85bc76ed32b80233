"""DCGAN tutorial: learn to draw (synthetic, 64x64) faces."""

import argparse
import os
import random
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from PIL import Image
from torch.utils.data import DataLoader, Dataset

#@ imports

# ----------------------------------------------------------------------------
# Hyperparameters

manualSeed = 999
workers = 2           # number of workers for the dataloader
image_size = 64       # spatial size of the training images
load_size = 72        # size at which they are stored; a random crop is taken
nc = 3                # color channels
nz = 100              # length of the latent vector
ngf = 24              # feature maps in the generator
ndf = 24              # feature maps in the discriminator
num_epochs = 100000
lr = 0.0002
beta1 = 0.5
real_label = 0.9      # one-sided label smoothing
fake_label = 0.0


# ----------------------------------------------------------------------------
# Data

def draw_faces(count, size, seed=0, chunk=256):
    """Paint cartoon-like portraits: background, hair, head, eyes, nose, mouth."""
    rng = np.random.default_rng(seed)
    ys, xs = np.meshgrid(np.linspace(-1, 1, size, dtype=np.float32),
                         np.linspace(-1, 1, size, dtype=np.float32), indexing="ij")
    faces = np.empty((count, size, size, 3), dtype=np.uint8)

    for first in range(0, count, chunk):
        n = min(chunk, count - first)

        def u(low, high):
            return rng.uniform(low, high, (n, 1, 1)).astype(np.float32)

        def ellipse(cx, cy, rx, ry):
            d = ((xs - cx) / rx) ** 2 + ((ys - cy) / ry) ** 2
            return np.clip((1.15 - d) * 6.0, 0.0, 1.0)[..., None]

        def color(low, high):
            return (np.asarray(low, np.float32) +
                    rng.random((n, 1, 1, 3), dtype=np.float32) * (np.subtract(high, low).astype(np.float32)))

        cx, cy, rx, ry = u(-.1, .1), u(-.05, .15), u(.42, .56), u(.56, .7)
        eye_dx, eye_y, eye_r = rx * u(.36, .48), cy - ry * u(.12, .25), u(.06, .1)

        img = color((.2, .2, .2), (.9, .9, 1.0)) * (1 - .15 * ys[..., None])
        layers = [
            (ellipse(cx, cy - .18, rx * 1.25, ry * u(1.0, 1.25)), color((.05, .03, .0), (.7, .5, .3))),
            (ellipse(cx, cy, rx, ry), color((.5, .35, .25), (1.0, .85, .75))),
            (ellipse(cx - eye_dx, eye_y, eye_r * 1.5, eye_r), np.float32(.97)),
            (ellipse(cx + eye_dx, eye_y, eye_r * 1.5, eye_r), np.float32(.97)),
            (ellipse(cx - eye_dx, eye_y, eye_r * .6, eye_r * .7), color((.0, .1, .1), (.3, .4, .6))),
            (ellipse(cx + eye_dx, eye_y, eye_r * .6, eye_r * .7), color((.0, .1, .1), (.3, .4, .6))),
            (ellipse(cx, cy + ry * .1, u(.03, .06), u(.1, .16)), color((.4, .25, .2), (.8, .6, .5))),
            (ellipse(cx, cy + ry * .52, rx * u(.25, .5), u(.03, .09)), color((.5, .1, .1), (.9, .4, .4))),
        ]
        for mask, paint in layers:
            img = img + mask * (paint - img)
        faces[first:first + n] = np.clip(img * 255, 0, 255).astype(np.uint8)
    return faces


class FaceDataset(Dataset):
    """RandomCrop + RandomHorizontalFlip + ToTensor + Normalize(0.5, 0.5)."""

    def __init__(self, images, crop):
        self.images = images
        self.crop = crop
        self.margin = images.shape[1] - crop

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        top = random.randint(0, self.margin)
        left = random.randint(0, self.margin)
        img = self.images[index, top:top + self.crop, left:left + self.crop]
        if random.random() < 0.5:
            img = img[:, ::-1]
        img = np.ascontiguousarray(img.transpose(2, 0, 1), dtype=np.float32)
        img = img / 127.5 - 1.0
        #@ sample array=img
        return torch.from_numpy(img)


# ----------------------------------------------------------------------------
# Networks

# custom weights initialization called on netG and netD
def weights_init(m):
    classname = m.__class__.__name__
    if classname.find('Conv') != -1:
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif classname.find('BatchNorm') != -1:
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            # Z goes in: (nz) x 1 x 1
            nn.ConvTranspose2d(nz, ngf * 8, 4, 1, 0, bias=False),
            nn.BatchNorm2d(ngf * 8),
            nn.ReLU(True),
            # (ngf*8) x 4 x 4
            nn.ConvTranspose2d(ngf * 8, ngf * 4, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ngf * 4),
            nn.ReLU(True),
            # (ngf*4) x 8 x 8
            nn.ConvTranspose2d(ngf * 4, ngf * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ngf * 2),
            nn.ReLU(True),
            # (ngf*2) x 16 x 16
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ngf),
            nn.ReLU(True),
            # (ngf) x 32 x 32
            nn.ConvTranspose2d(ngf, nc, 4, 2, 1, bias=False),
            nn.Tanh(),
            # (nc) x 64 x 64
        )

    def forward(self, z):
        #@ forward x=z
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(nc, ndf, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ndf * 2),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf * 2, ndf * 4, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ndf * 4),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf * 4, ndf * 8, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ndf * 8),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf * 8, 1, 4, 1, 0, bias=False),
        )

    def forward(self, input):
        return self.main(input).view(-1)


def save_grid(images, path, nrow=4):
    n, c, h, w = images.shape
    grid = images.view(n // nrow, nrow, c, h, w).permute(0, 3, 1, 4, 2).reshape(n // nrow * h, nrow * w, c)
    grid = ((grid + 1) * 127.5).clamp(0, 255).to(torch.uint8).cpu().numpy()
    Image.fromarray(grid).save(path)


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--scale', type=float, default=1.0, help='multiplies the batch size')
    parser.add_argument('--outf', default=None, help='folder for sample images')
    opt = parser.parse_args()

    outf = opt.outf or tempfile.mkdtemp(prefix='dcgan-')
    os.makedirs(outf, exist_ok=True)

    print("Random Seed: ", manualSeed)
    random.seed(manualSeed)
    torch.manual_seed(manualSeed)
    torch.backends.cudnn.benchmark = True
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")

    b_size = max(2, int(32 * opt.scale))
    dataset = FaceDataset(draw_faces(4096, load_size, seed=manualSeed), image_size)
    dataloader = DataLoader(
        dataset,
        batch_size=b_size,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        persistent_workers=True,
        pin_memory=(device.type == "cuda"),
    )

    netG = Generator().to(device)
    netG.apply(weights_init)
    netD = Discriminator().to(device)
    netD.apply(weights_init)
    print(netG)
    print(netD)

    criterion = nn.BCEWithLogitsLoss()
    fixed_noise = torch.randn(16, nz, 1, 1, device=device)
    real_target = torch.full((b_size,), real_label, device=device)
    fake_target = torch.full((b_size,), fake_label, device=device)
    ones = torch.ones(b_size, device=device)

    optimizerD = optim.Adam(netD.parameters(), lr=lr, betas=(beta1, 0.999))
    optimizerG = optim.Adam(netG.parameters(), lr=lr, betas=(beta1, 0.999))

    iters = 0
    print("Starting Training Loop...", flush=True)
    start = time.time()
    #@ setup
    for epoch in range(num_epochs):
        for i, data in enumerate(dataloader):

            ############################
            # (1) Update D network: maximize log(D(x)) + log(1 - D(G(z)))
            ###########################
            netD.zero_grad()
            real = data.to(device, non_blocking=True)
            errD_real = criterion(netD(real), real_target)
            errD_real.backward()

            noise = torch.randn(b_size, nz, 1, 1, device=device)
            fake = netG(noise)
            errD_fake = criterion(netD(fake.detach()), fake_target)
            errD_fake.backward()
            optimizerD.step()

            ############################
            # (2) Update G network: maximize log(D(G(z)))
            ###########################
            netG.zero_grad()
            output = netD(fake)
            errG = criterion(output, ones)
            errG.backward()
            optimizerG.step()

            if iters % 100 == 0:
                errD = errD_real + errD_fake
                print('[%d/%d][%d/%d]\tLoss_D: %.4f\tLoss_G: %.4f\tD(G(z)): %.4f\t%.1fs' % (
                    epoch, num_epochs, i, len(dataloader), errD.item(), errG.item(),
                    output.detach().sigmoid().mean().item(), time.time() - start), flush=True)

            # see how the generator is doing on fixed_noise
            if iters % 2000 == 1999:
                with torch.no_grad():
                    save_grid(netG(fixed_noise), os.path.join(outf, 'fake_samples.png'))

            iters += 1
            #@ step loss=errG model=netG batch=real,noise opt=optimizerG index=iters

        if epoch % 50 == 49:
            torch.save({'G': netG.state_dict(), 'D': netD.state_dict()}, os.path.join(outf, 'dcgan.pth'))
        #@ epoch
