"""What loading spends its time on, by stack samples of programs in many styles."""

from __future__ import annotations

from pathlib import Path

import pytest

from whyidle.monitor.code import source
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.signals.account import account_of
from whyidle.monitor.signals.feeding import Feeding
from whyidle.monitor.signals.loading import Loader, busy_workers, loading_of
from whyidle.monitor.signals.loading_chains import is_loading
from whyidle.monitor.signals.loading_kinds import LOAD_LOOKS, LoadKind
from whyidle.monitor.signals.recorded import Helper, Recorded

LIB = "/venv/lib/python3.11"
PACKAGES = f"{LIB}/site-packages"
LOOP = CodeLine("/job/train.py", 40, "main")
NEXT = CodeLine(f"{PACKAGES}/torch/utils/data/dataloader.py", 700, "__next__")
GET = CodeLine(f"{PACKAGES}/torch/utils/data/dataloader.py", 1200, "_try_get_data")
IDLE = CodeLine(f"{PACKAGES}/torch/utils/data/_utils/worker.py", 280, "_worker_loop")
ITEM = CodeLine("/job/data.py", 12, "__getitem__")


def lib(path: str, function: str = "load") -> CodeLine:
    return CodeLine(f"{PACKAGES}/{path}", 9, function)


def samples(
    *rows: tuple[Chain, float] | tuple[Chain, float, float] | tuple[Chain, float, float, float],
) -> StackSamples:
    """Return samples: of each chain how many, how many waited, and how many for a disk."""
    found = StackSamples()
    for chain, count, *more in rows:
        waited, blocked = (*more, 0, 0)[:2]
        found.samples += count
        found.count(chain, count, count, waited, 0, blocked)
    return found


def worker(*rows: tuple[Chain, float] | tuple[Chain, float, float]) -> Helper:
    return Helper(0.5, samples(*rows))


WAITS = samples((Chain((LOOP,), GET, NEXT), 900, 900), (Chain((LOOP,), LOOP), 100))


@pytest.mark.parametrize(
    ("leaf", "asked", "kind"),
    [
        # A folder of images without a line of the user's: torchvision, timm, Keras.
        (lib("PIL/ImageFile.py"), NEXT, LoadKind.DECODE),
        (lib("PIL/Image.py", "resize"), NEXT, LoadKind.TRANSFORM),
        (lib("torchvision/io/image.py", "decode_image"), NEXT, LoadKind.DECODE),
        (lib("soundfile.py", "read"), lib("soundfile.py", "read"), LoadKind.DECODE),
        (lib("transformers/tokenization_utils_fast.py", "_batch_encode_plus"),
         lib("transformers/tokenization_utils_base.py", "__call__"), LoadKind.TOKENISE),
        # What a tokeniser written in Python computes with is no augmenting.
        (lib("numpy/_core/numeric.py", "full"),
         lib("transformers/tokenization_utils_base.py", "pad"), LoadKind.TOKENISE),
        (lib("torch/utils/data/_utils/collate.py", "collate_tensor_fn"), NEXT, LoadKind.COLLATE),
        (CodeLine(f"{LIB}/json/decoder.py", 3, "raw_decode"),
         CodeLine(f"{LIB}/json/__init__.py", 3, "loads"), LoadKind.UNPACK),
        (lib("albumentations/core/composition.py", "__call__"), NEXT, LoadKind.TRANSFORM),
        (GET, NEXT, LoadKind.HAND_OVER),
        (CodeLine(f"{LIB}/multiprocessing/popen_fork.py", 66, "_launch"), NEXT, LoadKind.START),
        # A loader that begins makes its queues as well.
        (CodeLine(f"{LIB}/multiprocessing/context.py", 67, "Lock"),
         CodeLine(NEXT.file, 500, "__iter__"), LoadKind.START),
    ],
)  # fmt: skip
def test_libraries_are_known_by_their_files(
    leaf: CodeLine, asked: CodeLine, kind: LoadKind
) -> None:
    loading = loading_of(Recorded(stacks=samples((Chain((LOOP,), leaf, asked), 200))))
    assert loading is not None
    assert (loading.who, loading.cause) == (Loader.MAIN, kind)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("x = cv2.imdecode(raw, 1)", LoadKind.DECODE),
        ("ids = self.enc.encode_ordinary(text)", LoadKind.TOKENISE),
        ("ids = sentencepiece_model.encode(text)", LoadKind.TOKENISE),
        ("row = orjson.loads(text)", LoadKind.UNPACK),
        ("x = np.ascontiguousarray(x[::-1])", LoadKind.TRANSFORM),
        ("x = [v * 2 for v in row]", LoadKind.TRANSFORM),
        # Whose call it is the line does not say.
        ("x = self.store.fetch(i)", None),
    ],
)
def test_calls_into_c_are_known_by_the_users_line(
    tmp_path: Path, line: str, kind: LoadKind | None
) -> None:
    file = tmp_path / "data.py"
    file.write_text(f"import cv2\nimport numpy as np\ndef get(self, i, row=()):\n    {line}\n")
    at = CodeLine(str(file), 4, "__getitem__")
    loading = loading_of(Recorded(stacks=samples((Chain((at, LOOP), at), 200))))
    assert loading is not None
    assert loading.cause is kind
    if kind is not None:
        assert [place.line for place in loading.places(kind)] == [4]


def test_a_main_thread_that_waits_is_explained_by_its_workers() -> None:
    decodes = Chain((ITEM, LOOP), lib("PIL/ImageFile.py"), lib("PIL/Image.py", "convert"))
    job = Recorded(stacks=WAITS, helpers=(worker((decodes, 80), (Chain((LOOP,), IDLE), 20, 20)),))
    loading = loading_of(job)
    assert loading is not None
    assert (loading.who, loading.cause) == (Loader.WORKERS, LoadKind.DECODE)
    # Of the time in which it works, not of all.
    assert loading.share(LoadKind.DECODE) == pytest.approx(1.0)
    # Nobody looked at the workers: what the main thread does beside its wait explains nothing.
    assert loading_of(Recorded(stacks=WAITS)) is None


def test_a_main_thread_that_unpickles_all_the_time_is_no_fault_of_the_workers() -> None:
    decodes = Chain((ITEM, LOOP), lib("PIL/ImageFile.py"), None)
    rebuilds = Chain((LOOP,), lib("torch/multiprocessing/reductions.py", "rebuild_tensor"), NEXT)
    main = samples((rebuilds, 700), (Chain((LOOP,), GET, NEXT), 100, 100))
    loading = loading_of(Recorded(stacks=main, helpers=(worker((decodes, 10)),)))
    assert loading is not None
    assert (loading.who, loading.cause) == (Loader.MAIN, LoadKind.HAND_OVER)


@pytest.mark.parametrize(
    ("leaf", "waited", "blocked", "kind"),
    [
        # A page of a mapped file is not there: no call says so, but the kernel.
        (ITEM, 180, 180, LoadKind.STORAGE),
        # A file system that lets its readers sleep, as FUSE does.
        (lib("h5py/_hl/dataset.py", "__getitem__"), 180, 0, LoadKind.STORAGE),
        (CodeLine(f"{LIB}/ssl.py", 1130, "read"), 180, 0, LoadKind.NETWORK),
        (lib("PIL/ImageFile.py"), 10, 10, LoadKind.DECODE),
        (CodeLine("/job/data.py", 13, "fetch"), 180, 0, LoadKind.WAIT),
    ],
)
def test_what_a_thread_waits_for(
    leaf: CodeLine, waited: float, blocked: float, kind: LoadKind
) -> None:
    stacks = samples((Chain((ITEM, LOOP), leaf), 200, waited, blocked))
    loading = loading_of(Recorded(stacks=WAITS, helpers=(Helper(0.1, stacks),)))
    assert loading is not None
    assert loading.cause is kind


def test_a_worker_that_hands_its_work_to_threads_does_what_these_do() -> None:
    result = CodeLine(f"{LIB}/concurrent/futures/_base.py", 451, "result_iterator")
    one, feeds = CodeLine("/job/data.py", 30, "one"), f"{LIB}/multiprocessing/queues.py"
    threads = samples(
        (Chain((one,), CodeLine(f"{LIB}/gzip.py", 9, "read")), 70),
        (Chain((), CodeLine(feeds, 9, "_feed")), 20, 20),
        # Who shares memory with the process that trains listens all the time.
        (Chain((), CodeLine(f"{LIB}/socket.py", 9, "accept")), 90, 90),
    )
    mine = samples((Chain((ITEM, LOOP), result), 60, 45))
    loading = loading_of(Recorded(stacks=WAITS, helpers=(Helper(1.0, mine, threads),)))
    assert loading is not None
    assert loading.who is Loader.WORKERS
    assert loading.cause is LoadKind.UNPACK
    assert loading.places(LoadKind.UNPACK)[0].line == 30
    assert loading.share(LoadKind.NETWORK) == 0


def test_threads_of_the_process_itself_load() -> None:
    feed = CodeLine("/job/train.py", 20, "feed_batches")
    get = CodeLine(f"{LIB}/queue.py", 171, "get")
    main = samples((Chain((LOOP,), get), 80, 80))
    threads = samples(
        (Chain((feed,), lib("PIL/ImageFile.py")), 60),
        (Chain((), CodeLine(f"{PACKAGES}/tensorboard/summary/writer.py", 9, "run")), 300),
    )
    loading = loading_of(Recorded(stacks=main, threads=threads))
    assert loading is not None
    assert (loading.who, loading.cause) == (Loader.THREADS, LoadKind.DECODE)
    assert loading.places(LoadKind.DECODE)[0].function == "feed_batches"


TAKES = """\
for number in range(10**9):
    given = box.get()
    state = step(state, given)
"""


@pytest.mark.parametrize(("goes", "who"), [("given", Loader.THREADS), ("other", None)])
def test_threads_whose_work_goes_into_the_steps_load_whatever_they_are_called(
    goes: str, who: Loader | None, tmp_path: Path
) -> None:
    file = tmp_path / "go.py"
    file.write_text(TAKES.replace("step(state, given)", f"step(state, {goes})"))
    get = CodeLine(f"{LIB}/queue.py", 171, "get")
    main = samples(
        (Chain((CodeLine(str(file), 2, "<module>"),), get, get), 80, 80),
        (Chain((CodeLine(str(file), 3, "<module>"),), lib("torch/nn/modules/linear.py")), 20),
    )
    threads = samples((Chain((CodeLine(str(file), 9, "go"),), lib("numpy/fft/_pocketfft.py")), 60))
    loading = loading_of(Recorded(stacks=main, threads=threads), Feeding(account_of(main)))
    assert (loading and loading.who) is who
    if loading is not None:
        assert loading.waits == pytest.approx(0.7, abs=0.05)


@pytest.mark.parametrize(("holder", "waits"), [("feed_batches", 0.8), ("serve", 0.2)])
def test_who_waits_for_a_lock_that_a_loader_has_waits_for_the_loader(
    holder: str, waits: float
) -> None:
    feed = CodeLine("/job/train.py", 20, "feed_batches")
    main, holders = (
        samples((Chain((LOOP,), CodeLine(f"{LIB}/queue.py", 171, "get")), 200, 200)),
        (samples((Chain((CodeLine("/job/train.py", 30, holder),)), 600))),
    )
    other = Chain((LOOP,), LOOP)
    main.samples += 800
    main.count(other, 800, 800, 0, 600)
    threads = samples((Chain((feed,), lib("PIL/Image.py", "resize")), 60))
    loading = loading_of(Recorded(stacks=main, threads=threads, holders=holders))
    assert loading is not None
    assert loading.waits == pytest.approx(waits, abs=0.05)


def test_workers_that_only_start() -> None:
    imports = Chain((), CodeLine("<frozen importlib._bootstrap_external>", 883, "exec_module"))
    young = samples((imports, 60), (Chain((LOOP,), IDLE), 9, 9))
    loading = loading_of(Recorded(stacks=WAITS, short_lived=young))
    assert loading is not None
    assert (loading.who, loading.cause) == (Loader.WORKERS, LoadKind.START)


def test_too_little_is_known_to_name_a_cause() -> None:
    decode, parse = lib("PIL/ImageFile.py"), CodeLine(f"{LIB}/json/decoder.py", 3, "raw_decode")
    other = lib("somebody/codec.py")
    few = loading_of(Recorded(stacks=samples((Chain((ITEM,), decode), 12))))
    assert few is not None
    assert few.cause is None
    mixed = samples(*((Chain((ITEM,), leaf), 100) for leaf in (decode, parse, other, other)))
    unknown = loading_of(Recorded(stacks=mixed))
    assert unknown is not None
    assert unknown.cause is None


def test_a_job_that_trains_does_not_load() -> None:
    backward = lib("torch/_tensor.py", "backward")
    train = CodeLine("/job/train.py", 41, "train_batch")
    assert loading_of(Recorded(stacks=samples((Chain((train, LOOP), backward), 500)))) is None


@pytest.mark.parametrize(
    "leaf",
    [
        CodeLine(f"{LIB}/json/encoder.py", 3, "iterencode"),
        CodeLine(f"{LIB}/csv.py", 3, "writerow"),
        lib("torch/serialization.py", "_save"),
        lib("h5py/_hl/dataset.py", "__setitem__"),
    ],
)
def test_files_that_are_written_are_no_loading(leaf: CodeLine) -> None:
    log = CodeLine("/job/train.py", 50, "log_metrics")
    assert loading_of(Recorded(stacks=samples((Chain((log, LOOP), leaf), 200)))) is None


def test_how_much_each_worker_works() -> None:
    idle, busy = Chain((LOOP,), IDLE), Chain((ITEM, LOOP), ITEM)
    job = Recorded(helpers=(
        worker((idle, 90, 90), (busy, 10)), worker((busy, 100)), worker((busy, 5)),
    ))  # fmt: skip
    assert [round(each.share, 2) for each in busy_workers(job)] == [1.0, 0.1]


def test_each_kind_has_its_words() -> None:
    assert set(LOAD_LOOKS) == set(LoadKind)
    words = [look.words for look in LOAD_LOOKS.values()]
    assert len(set(words)) == len(words)


def test_no_source_of_a_library_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of TensorFlow and JAX are thousands of lines long: seconds for each diagnosis."""
    read: list[str] = []
    monkeypatch.setattr(source, "text_of", read.append)
    loop = CodeLine(str(tmp_path / "train.py"), 40, "main")
    folder = tmp_path / "lib" / "python3.11" / "site-packages" / "tensorflow"
    leaf, asked = (CodeLine(str(folder / name), 9, "call") for name in ("nest.py", "math_ops.py"))
    loading_of(Recorded(stacks=samples((Chain((loop,), leaf, asked), 100))))
    assert not [file for file in read if "site-packages" in file]


@pytest.mark.parametrize(
    ("function", "loads"),
    [
        ("load_training_data", True),
        ("fetch_train_batch", True),
        ("load_domain_data", True),
        ("retrieval_batches", True),
        ("make_batch", True),
        ("train_batch", False),
        ("eval_batches", False),
        ("batch_loss", False),
        ("run_training_batch", False),
        ("main", False),
    ],
)
def test_what_a_function_is_called_says_whether_it_loads(function: str, *, loads: bool) -> None:
    line = CodeLine("/nowhere/train.py", 3, function)
    assert is_loading(Chain((line,), line), None) is loads


BARS = {
    "tqdm": ("for x, y in tqdm(loader):", "tqdm/std.py", "__iter__"),
    "tqdm, numbered": ("for n, (x, y) in enumerate(tqdm(loader)):", "tqdm/std.py", "__iter__"),
    "rich": ("for x, y in track(loader):", "rich/progress.py", "track"),
}


@pytest.mark.parametrize("style", BARS)
def test_a_bar_of_progress_stands_before_what_loads(style: str, tmp_path: Path) -> None:
    head, path, function = BARS[style]
    file = tmp_path / "train.py"
    file.write_text(f"def train():\n    {head}\n        step(x, y)\n")
    line, bar = CodeLine(str(file), 2, "train"), lib(path, function)
    tensor = lib("torchvision/transforms/functional.py", "to_tensor")
    picture = lib("PIL/Image.py", "frombuffer")
    rows = ((Chain((line,), tensor, bar), 60), (Chain((line,), picture, bar), 15))
    seen = loading_of(Recorded(stacks=samples(*rows)))
    assert seen is not None
    assert (seen.who, seen.cause) == (Loader.MAIN, LoadKind.TRANSFORM)
    # What the bar itself takes, and what the step does behind one that is no loop, load nothing.
    inside = CodeLine(str(file), 3, "train")
    assert not is_loading(Chain((line,), bar, bar), None)
    assert not is_loading(Chain((inside,), tensor, bar), LoadKind.TRANSFORM)
