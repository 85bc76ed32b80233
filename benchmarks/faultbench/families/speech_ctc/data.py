"""Connected digits: log-mel features of isolated takes joined into strings, phone labels for CTC."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import Dataset, Sampler, get_worker_info

SAMPLE_RATE = 8000
WIN, HOP, N_FFT = 200, 80, 256
N_MELS = 40
BUCKETS = (144, 208, 272)  # frames; every batch is padded to exactly one of these
MAX_PHONES = 24

# phone -> (F1, F2, F3, voiced)
PHONES = {
    "AH": (640, 1190, 2390, 1.0),
    "AO": (570, 840, 2410, 1.0),
    "AY": (730, 1600, 2500, 1.0),
    "EH": (530, 1840, 2480, 1.0),
    "ER": (490, 1350, 1690, 1.0),
    "EY": (450, 2050, 2650, 1.0),
    "IH": (390, 1990, 2550, 1.0),
    "IY": (270, 2290, 3010, 1.0),
    "OW": (460, 900, 2400, 1.0),
    "UW": (300, 870, 2240, 1.0),
    "N": (250, 1450, 2300, 0.9),
    "R": (420, 1300, 1600, 0.9),
    "W": (290, 610, 2150, 0.9),
    "V": (220, 1100, 2080, 0.5),
    "Z": (240, 1390, 3500, 0.3),
    "F": (340, 1100, 2080, 0.0),
    "K": (300, 1990, 2850, 0.0),
    "S": (320, 1390, 3600, 0.0),
    "T": (400, 1600, 2600, 0.0),
    "TH": (320, 1290, 2540, 0.0),
}
LEXICON = {
    "zero": "Z IH R OW",
    "one": "W AH N",
    "two": "T UW",
    "three": "TH R IY",
    "four": "F AO R",
    "five": "F AY V",
    "six": "S IH K S",
    "seven": "S EH V AH N",
    "eight": "EY T",
    "nine": "N AY N",
}
BLANK = 0
PHONE_ID = {p: i for i, p in enumerate(PHONES, start=1)}
N_SYMBOLS = len(PHONE_ID) + 1


def mel_filterbank() -> np.ndarray:
    def to_mel(f):
        return 2595.0 * np.log10(1.0 + f / 700.0)

    edges = np.linspace(to_mel(60.0), to_mel(SAMPLE_RATE / 2), N_MELS + 2)
    hz = 700.0 * (10.0 ** (edges / 2595.0) - 1.0)
    bins = np.arange(N_FFT // 2 + 1) * SAMPLE_RATE / N_FFT
    rise = (bins[:, None] - hz[:-2]) / (hz[1:-1] - hz[:-2])
    fall = (hz[2:] - bins[:, None]) / (hz[2:] - hz[1:-1])
    return np.maximum(0.0, np.minimum(rise, fall)).astype(np.float32)


MEL = mel_filterbank()
WINDOW = np.hanning(WIN).astype(np.float32)


def log_mel(wave: np.ndarray) -> np.ndarray:
    frames = np.lib.stride_tricks.sliding_window_view(wave, WIN)[::HOP]
    power = np.abs(np.fft.rfft(frames * WINDOW, N_FFT)) ** 2
    return np.log(power.astype(np.float32) @ MEL + 1e-5)


def record(phones: list[str], rng: np.random.Generator) -> np.ndarray:
    """One speaker says one word, once."""
    pitch = rng.uniform(90, 230)
    tract = rng.uniform(0.9, 1.12)
    durations = (rng.uniform(0.07, 0.15, len(phones)) * SAMPLE_RATE).astype(int)
    track = np.repeat(np.array([PHONES[p] for p in phones]), durations, axis=0)
    formants, voiced = track[:, :3] * tract, track[:, 3]
    phase = np.cumsum(2 * np.pi * formants / SAMPLE_RATE, axis=0)
    resonances = np.sin(phase) @ np.array([1.0, 0.5, 0.25])
    t = np.arange(len(track)) / SAMPLE_RATE
    glottis = np.abs(np.cos(np.pi * pitch * t)) ** 4
    hiss = rng.standard_normal(len(track)) * np.sin(phase[:, 2])
    wave = voiced * glottis * resonances + 0.4 * (1.0 - voiced) * hiss
    return (rng.uniform(0.2, 0.9) * wave).astype(np.float32)


@dataclass
class Utterance:
    feats: np.ndarray  # (frames, N_MELS) float16, as kept in a feature archive
    phones: np.ndarray


def build_corpus(n_utterances: int, seed: int, takes: int = 30) -> list[Utterance]:
    rng = np.random.default_rng(seed)
    words = [spelling.split() for spelling in LEXICON.values()]
    labels = [np.array([PHONE_ID[p] for p in w], dtype=np.int32) for w in words]
    clips = [[log_mel(record(w, rng)).astype(np.float16) for _ in range(takes)] for w in words]
    room = log_mel(0.004 * rng.standard_normal(4 * SAMPLE_RATE).astype(np.float32)).astype(np.float16)

    corpus = []
    while len(corpus) < n_utterances:
        parts, phones = [], []
        for digit in rng.integers(0, len(words), size=rng.integers(3, 7)):
            gap, at = rng.integers(4, 16), rng.integers(0, len(room) - 16)
            parts += [room[at : at + gap], clips[digit][rng.integers(takes)]]
            phones.append(labels[digit])
        feats, target = np.concatenate(parts), np.concatenate(phones)
        if len(feats) <= BUCKETS[-1] and len(target) <= MAX_PHONES:
            corpus.append(Utterance(feats, target))
    return corpus


class DigitStrings(Dataset):
    def __init__(self, corpus: list[Utterance], augment: bool):
        self.corpus = corpus
        self.augment = augment
        self.rng = np.random.default_rng(0)
        stacked = np.concatenate([u.feats for u in corpus[:400]]).astype(np.float32)
        self.mean, self.std = stacked.mean(axis=0), stacked.std(axis=0) + 1e-3

    def __len__(self) -> int:
        return len(self.corpus)

    def frames(self) -> np.ndarray:
        return np.array([len(u.feats) for u in self.corpus])

    def __getitem__(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        utt = self.corpus[i]
        feats = (utt.feats.astype(np.float32) - self.mean) / self.std
        if self.augment:
            self.mask_(feats)
        #@ sample array=feats
        return feats, utt.phones

    def mask_(self, feats: np.ndarray) -> None:
        """SpecAugment: one band and one short span of time."""
        width, span = self.rng.integers(0, 7), self.rng.integers(0, 9)
        f = self.rng.integers(0, N_MELS - width)
        t = self.rng.integers(0, len(feats) - span)
        feats[:, f : f + width] = 0.0
        feats[t : t + span] = 0.0


def seed_worker(_: int) -> None:
    info = get_worker_info()
    info.dataset.rng = np.random.default_rng(info.seed)


class BucketSampler(Sampler):
    """Batches whose utterances all fall into the same length bucket, in random order."""

    def __init__(self, frames: np.ndarray, batch_size: int, seed: int = 0):
        bucket = np.searchsorted(BUCKETS, frames)
        self.members = [np.flatnonzero(bucket == b) for b in range(len(BUCKETS))]
        self.batch_size = batch_size
        self.rng = np.random.default_rng(seed)

    def __len__(self) -> int:
        return sum(len(m) // self.batch_size for m in self.members)

    def __iter__(self):
        batches = []
        for members in self.members:
            full = len(members) // self.batch_size * self.batch_size
            batches.extend(self.rng.permutation(members)[:full].reshape(-1, self.batch_size))
        self.rng.shuffle(batches)
        return (b.tolist() for b in batches)


def collate(samples):
    lengths = np.array([len(f) for f, _ in samples], dtype=np.int64)
    target_lengths = np.array([len(p) for _, p in samples], dtype=np.int64)
    padded = BUCKETS[np.searchsorted(BUCKETS, lengths.max())]
    feats = np.zeros((len(samples), padded, N_MELS), dtype=np.float32)
    targets = np.full((len(samples), MAX_PHONES), BLANK, dtype=np.int64)
    for row, (f, p) in enumerate(samples):
        feats[row, : len(f)] = f
        targets[row, : len(p)] = p
    #@ batch arrays=feats,targets
    return (
        torch.from_numpy(feats),
        torch.from_numpy(lengths),
        torch.from_numpy(targets),
        torch.from_numpy(target_lengths),
    )
