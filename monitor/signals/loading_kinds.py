"""What loading may spend its time on, declared once: how it is known, what it is called, its cure.

A role is what a library does where a thread was found, in what the user's line had called, and by
the names on that line, as far as its source can be read. Patterns of functions are matched with the
names of the user's own functions around it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from whyidle.monitor.core.finding import Fix, Framework
from whyidle.monitor.libraries.frames import is_call
from whyidle.monitor.libraries.table import Role


class LoadKind(StrEnum):
    """What a thread that loads does. Where two fit, the first one counts."""

    START = "start"
    STORAGE = "storage"
    NETWORK = "network"
    WAIT = "wait"
    TOKENISE = "tokenise"
    UNPACK = "unpack"
    DECODE = "decode"
    HAND_OVER = "hand_over"
    COLLATE = "collate"
    TRANSFORM = "transform"


@dataclass(frozen=True, slots=True)
class LoadLook:
    """One kind: its words in evidence, the title of a finding, its cure, and its marks."""

    words: str
    title: str
    cure: str
    code: dict[Framework, str]
    # Of threads that run; those that wait are told apart by ``loading.py``.
    role: Role | None = None
    functions: re.Pattern[str] | None = None
    # Whether more workers or threads divide it.
    divides: bool = True

    def calls(self, names: Sequence[str]) -> bool:
        """Tell whether what a line calls does this."""
        return self.role is not None and is_call(self.role, names)

    def fixes(self) -> dict[Framework, Fix]:
        """Return the cure for each framework."""
        both: tuple[Framework, ...] = ("pytorch", "jax")
        return {name: Fix(self.cure, self.code.get(name, "")) for name in both}


def _both(code: str) -> dict[Framework, str]:
    return {"pytorch": code, "jax": code}


def _names(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_ONCE: Final = """\
if not os.path.exists(kept):  # once, before training
    np.save(kept, np.stack([prepare(read(path)) for path in paths]))
samples = np.load(kept, mmap_mode="r")"""

LOAD_LOOKS: Final[dict[LoadKind, LoadLook]] = {
    LoadKind.START: LoadLook(
        "starting workers",
        "The device waits while loader workers start again",
        "Keep the workers from one epoch to the next. Each start copies the process or imports"
        " everything again, and refills the queues.",
        {
            "pytorch": """\
loader = DataLoader(dataset, persistent_workers=True, **as_before)""",
            "jax": """\
with ThreadPoolExecutor(2) as pool:  # once, around the loop over epochs
    for epoch in range(epochs):
        for batch in pool.map(read, orders):
            train(batch)""",
        },
        role=Role.START,
        divides=False,
    ),
    LoadKind.STORAGE: LoadLook(
        "waiting for storage",
        "The data loader waits for storage",
        "Copy the data to a local disk or into memory before training. Or read it in few large"
        " files in the order in which they lie. With more workers than cores, several wait at"
        " once.",
        _both("""\
local = os.path.join(tempfile.gettempdir(), "data")
# once, before training
shutil.copytree(root, local, dirs_exist_ok=True)"""),
    ),
    LoadKind.NETWORK: LoadLook(
        "waiting for the network",
        "The data loader waits for the network",
        "Fetch many samples at once, ahead of their use. Keep on a local disk what comes again"
        " in the next epoch.",
        _both("""\
with ThreadPoolExecutor(16) as pool:
    # a batch waits as long as its slowest sample
    samples = list(pool.map(fetch, keys))"""),
    ),
    LoadKind.WAIT: LoadLook(
        "waits that use no CPU",
        "The data loader sleeps: it uses no CPU time",
        "Several waits at once take as long as one: use more workers or threads, also more than"
        " there are cores. Then look at what the line waits for.",
        _both("""\
with ThreadPoolExecutor(16) as pool:
    # a batch waits as long as its slowest sample
    samples = list(pool.map(fetch, keys))"""),
    ),
    LoadKind.TOKENISE: LoadLook(
        "tokenizing",
        "The data loader is slow: it tokenizes text",
        "Tokenize once, before training, and read numbers in the loop.",
        _both("""\
if not os.path.exists(kept):  # once, before training
    tokens = np.concatenate([tokenize(text) for text in texts])
    np.save(kept, tokens.astype(np.int32))
tokens = np.load(kept, mmap_mode="r")"""),
        role=Role.TOKENIZE,
        functions=_names(r".*tokeni[sz].*"),
    ),
    LoadKind.UNPACK: LoadLook(
        "reading and unpacking files",
        "The data loader is slow: it reads and unpacks files",
        "Store the samples in a form that needs no unpacking. Use arrays that are mapped into"
        " memory, not text, pickles or compressed archives.",
        _both(_ONCE),
        role=Role.UNPACK,
        functions=_names(r".*(?:decompress|unpickle|deseriali[sz]e|unpack).*"),
    ),
    LoadKind.DECODE: LoadLook(
        "decoding",
        "The data loader is slow: it decodes samples",
        "Decode once, and keep samples at the size that the model takes. Or use a faster"
        " decoder: a JPEG at a smaller scale (Image.draft), or on the GPU"
        " (torchvision.io.decode_jpeg).",
        _both("""\
image = Image.open(path)
# JPEG: decoded at a half, a quarter or an eighth of its size
image.draft("RGB", (256, 256))
pixels = np.asarray(image.convert("RGB").resize((224, 224)))"""),
        role=Role.DECODE,
        functions=_names(r".*decode.*"),
    ),
    LoadKind.HAND_OVER: LoadLook(
        "handing batches over between processes",
        "The data loader is slow: it copies batches from its workers",
        "Put each batch together in the worker, into few large tensors. These are shared, while"
        " lists and dictionaries of many objects are pickled one by one.",
        {
            "pytorch": """\
# runs in the worker: one tensor for each part of a batch
def collate(samples):
    xs, ys = zip(*samples)
    xs = torch.stack([torch.as_tensor(x) for x in xs])
    return xs, torch.tensor(ys)"""
        },
        role=Role.HAND_OVER,
        divides=False,
    ),
    LoadKind.COLLATE: LoadLook(
        "collating samples",
        "The data loader is slow: it collates samples",
        "Collate arrays of one size in a single call. Where sizes differ, sort by length, so"
        " that little is padded.",
        {
            "pytorch": """\
def collate(samples):
    return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)""",
            "jax": """\
def collate(samples):
    return np.stack(samples)""",
        },
        role=Role.COLLATE,
        functions=_names(r".*(?:collat|pad_batch|batchify).*"),
    ),
    LoadKind.TRANSFORM: LoadLook(
        "transforming samples",
        "The data loader is slow: it transforms samples",
        "Transform whole batches on the device, not one sample at a time. Keep what does not"
        " change between epochs.",
        {
            "pytorch": """\
batch = batch.to(device, non_blocking=True)
flipped = torch.rand(len(batch), 1, 1, 1, device=device) < 0.5
batch = torch.where(flipped, batch.flip(-1), batch)""",
            "jax": """\
@jax.jit
def augment(key, batch):
    flipped = jax.random.bernoulli(key, shape=(len(batch), 1, 1, 1))
    return jnp.where(flipped, batch[:, :, ::-1], batch)""",
        },
        role=Role.TRANSFORM,
        functions=_names(
            r".*(?:augment|transform|crop|resize|normali[sz]e|preprocess|prepare|featuri[sz]e|mask"
            r"|filter|noise|flip|rotate|warp|spectrogram).*"
        ),
    ),
}
