"""A made-up annotated corpus in the shape of CoNLL-2003, and a word-piece vocabulary for it."""

import random
from itertools import product

import torch
from torch.utils.data import Dataset

LABELS = ["O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC", "B-MISC", "I-MISC"]
LABEL2ID = {label: i for i, label in enumerate(LABELS)}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
IGNORE = -100

ONSETS = "b d f g k l m n p r s t v z br dr kl st tr".split()
NUCLEI = "a e i o u ai ou".split()
SYLLABLES = [onset + nucleus for onset, nucleus in product(ONSETS, NUCLEI)]


class PieceTokenizer:
    """Splits known words into pieces, as a trained WordPiece model with a filled cache would."""

    def __init__(self, lexicon):
        pieces = SPECIAL + SYLLABLES + ["##" + s for s in SYLLABLES]
        self.vocab = {piece: i for i, piece in enumerate(pieces)}
        self.pad_id, self.unk_id, self.cls_id, self.sep_id = range(4)
        self.cache = {
            "".join(word): [
                self.vocab[s if i == 0 else "##" + s] for i, s in enumerate(word)
            ]
            for word in lexicon
        }

    def __len__(self):
        return len(self.vocab)

    def __call__(self, word):
        return self.cache.get(word, [self.unk_id])


def build_lexicons(rng):
    def words(count, low, high):
        return [tuple(rng.choices(SYLLABLES, k=rng.randint(low, high))) for _ in range(count)]

    return {
        "O": words(3000, 1, 2),
        "PER": words(400, 2, 3),
        "ORG": words(400, 2, 4),
        "LOC": words(300, 1, 3),
        "MISC": words(200, 2, 3),
    }


def make_sentence(rng, surface, min_words=24, max_words=40):
    words, tags = [], []
    length = rng.randint(min_words, max_words)
    while len(words) < length:
        if rng.random() < 0.87:
            words.append(rng.choice(surface["O"]))
            tags.append("O")
            continue
        kind = rng.choice(("PER", "ORG", "LOC", "MISC"))
        for position in range(rng.randint(1, 3)):
            words.append(rng.choice(surface[kind]))
            tags.append(("I-" if position else "B-") + kind)
    return words, tags


class TaggedSentences(Dataset):
    """Sentences as token ids; only the first piece of a word carries its label."""

    def __init__(self, sentences, tokenizer, max_length):
        self.sentences = sentences
        self.tokenizer = tokenizer
        self.max_length = max_length

    def __len__(self):
        return len(self.sentences)

    def __getitem__(self, i):
        words, tags = self.sentences[i]
        input_ids, labels = [self.tokenizer.cls_id], [IGNORE]
        for word, tag in zip(words, tags):
            pieces = self.tokenizer(word)
            input_ids += pieces
            labels += [LABEL2ID[tag]] + [IGNORE] * (len(pieces) - 1)
        input_ids = input_ids[: self.max_length - 1] + [self.tokenizer.sep_id]
        labels = labels[: self.max_length - 1] + [IGNORE]
        #@ sample tokens=input_ids
        return {"input_ids": input_ids, "labels": labels}


class PadCollator:
    """Pads to the longest sentence of the batch, rounded up to a multiple of 16."""

    def __init__(self, pad_id, multiple=16):
        self.pad_id = pad_id
        self.multiple = multiple

    def __call__(self, features):
        lengths = torch.tensor([len(f["input_ids"]) for f in features])
        width = -(-max(len(f["input_ids"]) for f in features) // self.multiple) * self.multiple

        def pad(key, value):
            return torch.tensor([f[key] + [value] * (width - len(f[key])) for f in features])

        input_ids, labels = pad("input_ids", self.pad_id), pad("labels", IGNORE)
        attention_mask = (torch.arange(width) < lengths[:, None]).long()
        #@ batch arrays=input_ids,attention_mask,labels
        return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


def load_corpus(train_size, eval_size, max_length, seed=13):
    rng = random.Random(seed)
    lexicons = build_lexicons(rng)
    tokenizer = PieceTokenizer(word for words in lexicons.values() for word in words)
    surface = {kind: ["".join(w) for w in words] for kind, words in lexicons.items()}
    train = [make_sentence(rng, surface) for _ in range(train_size)]
    dev = [make_sentence(rng, surface) for _ in range(eval_size)]
    return (
        TaggedSentences(train, tokenizer, max_length),
        TaggedSentences(dev, tokenizer, max_length),
        tokenizer,
    )
