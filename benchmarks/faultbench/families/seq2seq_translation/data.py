"""Lab 5: a toy English -> "Germanish" parallel corpus, its vocabularies and the data loaders."""

import random

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIALS = ["<pad>", "<bos>", "<eos>", "<unk>"]

NOUNS = {
    "dog": ("der", "hund"), "cat": ("die", "katze"), "house": ("das", "haus"), "tree": ("der", "baum"),
    "woman": ("die", "frau"), "man": ("der", "mann"), "child": ("das", "kind"), "book": ("das", "buch"),
    "street": ("die", "strasse"), "car": ("das", "auto"), "teacher": ("der", "lehrer"), "city": ("die", "stadt"),
    "bird": ("der", "vogel"), "flower": ("die", "blume"), "girl": ("das", "maedchen"), "table": ("der", "tisch"),
}
ADJECTIVES = {
    "old": "alte", "young": "junge", "small": "kleine", "big": "grosse", "red": "rote", "green": "gruene",
    "quiet": "ruhige", "happy": "froehliche", "tired": "muede", "beautiful": "schoene",
}
VERBS = {
    "sees": "sieht", "hears": "hoert", "finds": "findet", "likes": "mag", "draws": "zeichnet",
    "knows": "kennt", "seeks": "sucht", "loves": "liebt",
}
ADVERBS = {"today": "heute", "often": "oft", "never": "nie", "now": "jetzt", "always": "immer"}
CONJUNCTIONS = {"and": "und", "but": "aber", "because": "weil", "while": "waehrend"}


def noun_phrase(rng):
    noun = rng.choice(list(NOUNS))
    article, german = NOUNS[noun]
    adjectives = rng.sample(list(ADJECTIVES), rng.choice([0, 1, 1, 2]))
    return (
        ["the", *adjectives, noun],
        [article, *(ADJECTIVES[a] for a in adjectives), german],
    )


def clause(rng, verb_last):
    subject, subject_de = noun_phrase(rng)
    obj, obj_de = noun_phrase(rng)
    verb, adverb = rng.choice(list(VERBS)), rng.choice(list(ADVERBS))
    english = [*subject, verb, *obj, adverb]
    if verb_last:
        german = [*subject_de, ADVERBS[adverb], *obj_de, VERBS[verb]]
    else:
        german = [ADVERBS[adverb], VERBS[verb], *subject_de, *obj_de]
    return english, german


def sentence_pair(rng):
    english, german = clause(rng, verb_last=False)
    for _ in range(rng.choice([0, 0, 1])):
        word = rng.choice(list(CONJUNCTIONS))
        more, more_de = clause(rng, verb_last=word in ("because", "while"))
        english = [*english, ",", word, *more]
        german = [*german, ",", CONJUNCTIONS[word], *more_de]
    return [*english, "."], [*german, "."]


def make_corpus(size, seed):
    rng = random.Random(seed)
    return [sentence_pair(rng) for _ in range(size)]


class Vocab:
    def __init__(self, sentences):
        self.itos = SPECIALS + sorted({word for sentence in sentences for word in sentence})
        self.stoi = {word: i for i, word in enumerate(self.itos)}

    def __len__(self):
        return len(self.itos)

    def encode(self, words):
        return [BOS, *(self.stoi.get(word, UNK) for word in words), EOS]

    def decode(self, ids):
        words = []
        for i in ids:
            if i == EOS:
                break
            if i >= len(SPECIALS):
                words.append(self.itos[i])
        return " ".join(words)


class TranslationDataset(Dataset):
    def __init__(self, pairs, src_vocab, tgt_vocab):
        self.pairs = pairs
        self.src_vocab = src_vocab
        self.tgt_vocab = tgt_vocab

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        src_words, tgt_words = self.pairs[i]
        src_ids = self.src_vocab.encode(src_words)
        tgt_ids = self.tgt_vocab.encode(tgt_words)
        #@ sample tokens=src_ids
        return src_ids, tgt_ids


def pad(sequences):
    longest = max(map(len, sequences))
    return np.array([ids + [PAD] * (longest - len(ids)) for ids in sequences], dtype=np.int64)


def collate(pairs):
    """List of (src, tgt) id lists -> two padded LongTensors of shape (batch, length)."""
    src, tgt = zip(*pairs)
    src, tgt = pad(src), pad(tgt)
    #@ batch arrays=src,tgt
    return torch.from_numpy(src), torch.from_numpy(tgt)


def get_loaders(batch_size, n_train=24000, n_valid=512, pin_memory=False):
    train_pairs = make_corpus(n_train, seed=1)
    valid_pairs = make_corpus(n_valid, seed=2)
    src_vocab = Vocab(src for src, _ in train_pairs)
    tgt_vocab = Vocab(tgt for _, tgt in train_pairs)
    train_loader = DataLoader(
        TranslationDataset(train_pairs, src_vocab, tgt_vocab),
        batch_size=batch_size,
        shuffle=True,
        drop_last=True,
        collate_fn=collate,
        num_workers=2,
        persistent_workers=True,
        pin_memory=pin_memory,
    )
    valid_loader = DataLoader(
        TranslationDataset(valid_pairs, src_vocab, tgt_vocab),
        batch_size=128,
        collate_fn=collate,
        pin_memory=pin_memory,
    )
    return train_loader, valid_loader, src_vocab, tgt_vocab
