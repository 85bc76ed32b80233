"""Programs whose main thread waits for requests, orders or its own threads: who is judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.rules.windows import is_silent, judge, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Found, NotChecked
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.diagnosis.diagnose import as_json, diagnose
from whyidle.monitor.render.findings import screen
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.signals.awaited import Awaited, awaited, serves_at
from whyidle.monitor.signals.portable import dump, load
from whyidle.monitor.signals.recorded import Helper
from whyidle.monitor.signals.serving import trains
from whyidle.monitor.signals.window import Window

LIB = "/usr/lib/python3.11"
PACKAGES = "/venv/lib/python3.11/site-packages"
MODEL = f"{PACKAGES}/torch/nn/modules/linear.py forward"
BOOT = f"{LIB}/threading.py _bootstrap"
FACTS = {"torch": {"backend": "cpu"}}
BUSY = {
    m.JOB_CPU: 1.2,
    m.PROCESS_CPU: 1.2,
    m.JOB_MAIN_THREAD: 0.02,
    m.HOST_CORES: 4.0,
    m.HOST_CPU: 0.3,
}
# (marks of lines from the innermost out, leaf, what was called, samples, how many of them waited);
# a leaf of none is the line itself.
Row = tuple[str, str | None, str | None, int, int]


@dataclass(frozen=True)
class Program:
    """A program whose lines have marks, and where its threads were seen."""

    source: str
    main: tuple[Row, ...]
    threads: tuple[Row, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)

    def window(self, folder: Path, means: Mapping[Metric, float] = BUSY) -> Window:
        """Return what is known of it."""
        file = folder / "program.py"
        file.write_text(self.source)
        main, threads = (_samples(file, self.source, rows) for rows in (self.main, self.threads))
        return window(
            means=means, stacks=main, lines=main.lines(), leaves=main.leaves(), threads=threads,
            facts=FACTS, inside=True, **self.more,
        )  # fmt: skip


def _samples(file: Path, source: str, rows: tuple[Row, ...]) -> StackSamples:
    found, at, function = StackSamples(), dict[str, CodeLine](), "<module>"
    for number, text in enumerate(source.splitlines(), 1):
        if text.lstrip().startswith(("def ", "async def ")):
            function = text.split("def ")[1].split("(")[0]
        elif text and not text.startswith(" "):
            function = "<module>"
        if "  # " in text:
            at[text.rpartition("  # ")[2]] = CodeLine(str(file), number, function)
    for marks, leaf, called, samples, waited in rows:
        frames = tuple(at[mark] for mark in marks.split())
        line, its = (
            None if x is None else CodeLine(x.split()[0], 9, x.split()[1]) for x in (leaf, called)
        )
        found.samples += samples
        found.count(Chain(frames, line or frames[0], its), samples, samples, waited)
    return found


FLASK = Program(
    """
import torch
from flask import Flask, jsonify, request
app = Flask(__name__)
def transform(data):
    return decode(data)  # decode
@app.route("/predict", methods=["POST"])
def predict():
    x = transform(request.files["file"].read())  # transform
    return jsonify(model(x).tolist())  # model
app.run()  # run
""",
    (("run", f"{LIB}/socketserver.py serve_forever", f"{PACKAGES}/flask/app.py run", 367, 360),),
    (
        ("model", MODEL, MODEL, 30, 0),
        (
            "decode transform",
            f"{PACKAGES}/PIL/Image.py load",
            f"{PACKAGES}/PIL/Image.py load",
            6,
            0,
        ),
        ("", f"{LIB}/socket.py readinto", BOOT, 4, 4),
        ("", "<_whyidle_agent.control> wait", "<_whyidle_agent.worker> _run", 40, 40),
    ),
)
ACCEPTS = Program(
    """
import socket, threading
def answer(connection):
    while data := connection.recv(65536):  # receive
        connection.sendall(encode(model(decode(data))))  # model
def main():
    server = socket.create_server(("", 8000))
    while True:
        connection, _ = server.accept()  # accept
        threading.Thread(target=answer, args=(connection,)).start()
main()  # main
""",
    (("accept main", f"{LIB}/socket.py accept", f"{LIB}/socket.py accept", 380, 380),),
    (("model", MODEL, MODEL, 20, 0), ("receive", None, None, 20, 20)),
)
FASTAPI = Program(
    """
import uvicorn
from fastapi import FastAPI
app = FastAPI()
@app.post("/predict")
def predict(rows: list[float]):
    return model(tensor(rows)).tolist()  # model
uvicorn.run(app)  # run
""",
    (("run", f"{LIB}/selectors.py select", f"{PACKAGES}/uvicorn/main.py run", 370, 350),),
    (
        ("model", MODEL, MODEL, 25, 0),
        ("", f"{LIB}/threading.py _bootstrap", BOOT, 300, 300),
    ),
)
SIGNAL = Program(
    """
import queue, signal, threading
orders = queue.Queue()
def work():
    while True:
        order = orders.get()  # get
        order.answer(model(order.rows))  # model
threading.Thread(target=work, daemon=True).start()
serve_in_background(orders)
signal.pause()  # pause
""",
    (("pause", None, None, 390, 390),),
    (
        ("model", MODEL, MODEL, 15, 0),
        ("get", f"{LIB}/threading.py wait", f"{LIB}/queue.py get", 25, 25),
    ),
)
CONSUMER = Program(
    """
import queue, threading
items, results = queue.Queue(4), queue.Queue(4)
def consume():
    while True:
        results.put(model(items.get()))  # model
threading.Thread(target=consume, daemon=True).start()
def main():
    for name in names():
        items.put(read(name))  # put
        write(results.get())  # get
main()  # main
""",
    (("get main", f"{LIB}/threading.py wait", f"{LIB}/queue.py get", 380, 380),
     ("put main", None, None, 8, 0)),
    (("model", MODEL, MODEL, 38, 0),),
)  # fmt: skip
BY_THREADS = {
    "flask": FLASK, "accept": ACCEPTS, "fastapi": FASTAPI, "signal": SIGNAL, "consumer": CONSUMER,
}  # fmt: skip

HTTP = Program(
    """
import json
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))  # read
        self.wfile.write(json.dumps(model(tensor(rows)).tolist()).encode())  # model
HTTPServer(("", 8000), Handler).serve_forever()  # serve
""",
    (
        ("serve", f"{LIB}/selectors.py select", f"{LIB}/socketserver.py serve_forever", 200, 200),
        ("read serve", f"{LIB}/socket.py readinto", f"{LIB}/socket.py readinto", 60, 60),
        ("model serve", MODEL, MODEL, 100, 0),
    ),
)
WORKER = Program(
    """
import queue, socket, threading
orders = queue.Queue()
def listen():
    server = socket.create_server(("", 8000))
    while True:
        connection, _ = server.accept()
        orders.put((connection, connection.recv(65536)))  # receive
threading.Thread(target=listen, daemon=True).start()
def work():
    while True:
        connection, data = orders.get()  # get
        connection.sendall(encode(model(decode(data))))  # model
work()  # work
""",
    (
        ("get work", f"{LIB}/threading.py wait", f"{LIB}/queue.py get", 240, 240),
        ("model work", MODEL, MODEL, 120, 0),
    ),
    (("receive", None, None, 36, 36),),
)
ASYNCIO = Program(
    """
import asyncio
async def answer(reader, writer):
    writer.write(encode(model(decode(await reader.read(65536)))))  # model
async def main():
    server = await asyncio.start_server(answer, "", 8000)
    await server.serve_forever()
asyncio.run(main())  # run
""",
    (
        (
            "run",
            f"{LIB}/asyncio/base_events.py _run_once",
            f"{LIB}/asyncio/runners.py run",
            250,
            245,
        ),
        ("model run", MODEL, MODEL, 110, 0),
    ),
)
BY_MAIN = {"http.server": (HTTP, 0.72), "queue worker": (WORKER, 0.67), "asyncio": (ASYNCIO, 0.68)}

PREFETCH = """
import queue, threading
batches = queue.Queue(4)
def load():
    for name in names():
        batches.put(decode(name))  # decode
threading.Thread(target=load, daemon=True).start()
def main():
    for step in range(1000):
        x = batches.get()  # get
        {work}  # model
{more}
main()  # main
"""
_FED: tuple[Row, ...] = (
    ("get main", f"{LIB}/threading.py wait", f"{LIB}/queue.py get", 240, 240),
    ("model main", MODEL, MODEL, 120, 0),
)
_LOADS: tuple[Row, ...] = (
    ("decode", f"{PACKAGES}/PIL/ImageFile.py load", f"{PACKAGES}/PIL/Image.py load", 38, 0),
)
TRAINS = Program(PREFETCH.format(work="loss = train_step(model, x)", more=""), _FED, _LOADS)
INFERS = Program(PREFETCH.format(work="write(model(x))", more=""), _FED, _LOADS)


@pytest.mark.parametrize("style", BY_THREADS)
def test_threads_that_work_stand_for_a_main_thread_that_waits(style: str, tmp_path: Path) -> None:
    job = BY_THREADS[style].window(tmp_path)
    assert job.serves
    assert job.job.serving is not None
    assert job.job.serving.by_threads
    assert job.host is not None
    # Nothing but the framework's work, at the line of the model, and what stands beside it.
    assert job.host.rows[0].frames[0].function in {"predict", "answer", "work", "consume"}
    assert job.host.share(*{row.doing for row in job.host.rows if row.doing != "wait"}) == 1.0
    _is_quiet(job)


@pytest.mark.parametrize("style", BY_MAIN)
def test_what_a_main_thread_waits_for_requests_is_left_out(style: str, tmp_path: Path) -> None:
    program, idle = BY_MAIN[style]
    job = program.window(tmp_path)
    assert job.serves
    assert job.job.serving is not None
    assert not job.job.serving.by_threads
    assert job.idles == pytest.approx(idle, abs=0.02)
    assert job.host is not None
    assert job.host.share(*{row.doing for row in job.host.rows if row.doing != "wait"}) == 1.0
    _is_quiet(job)


def _is_quiet(job: Window) -> None:
    """Nothing is loud, nothing gets faster, and nobody hears of steps or batches."""
    found = diagnose(job)
    answer = as_json(found)
    assert [f.severity for f in answer.findings if f.severity in {"high", "medium"}] == []
    assert [f.speedup for f in answer.findings if f.speedup or f.lost_share] == []
    assert answer.phases == []
    said = screen(as_json(found), console=Console(width=200, highlight=False)).partition(
        "Not checked"
    )[0]
    for word in ("step", "faster", "batch"):
        assert word not in said, said
    assert "waits for" in said


def test_a_server_that_never_rests_has_no_batches_either(tmp_path: Path) -> None:
    busy = (
        ("model serve", MODEL, MODEL, 200, 0),
        ("read serve", f"{LIB}/json/decoder.py d", None, 160, 0),
    )
    job = Program(HTTP.source, busy).window(tmp_path)
    assert job.serves
    assert job.idles == 0.0
    assert job.job.serving is not None
    assert job.job.serving.waits == Awaited.CLIENTS
    _is_quiet(job)


@pytest.mark.parametrize("program", [TRAINS, INFERS])
def test_who_waits_for_its_own_prefetching_is_judged_for_it(
    program: Program, tmp_path: Path
) -> None:
    job = program.window(tmp_path)
    assert not job.serves
    verdict = judge("input_starved", job)
    assert isinstance(verdict, Found)
    assert verdict.gain is not None
    assert verdict.gain.high > 0.5
    # It trains, or not: only then it is known to get faster, though no step was counted.
    assert job.paced_by == ("time" if program is TRAINS else None)


def test_steps_that_an_optimizer_counts_are_trained_and_none_of_a_loop(tmp_path: Path) -> None:
    stepping = BUSY | {m.JOB_STEPS: 20.0}
    by = Program(WORKER.source, WORKER.main, WORKER.threads, {"steps_by": "optimizer"})
    assert not by.window(tmp_path, stepping).serves
    turning = Program(WORKER.source, WORKER.main, WORKER.threads, {"steps_by": "loop"})
    assert turning.window(tmp_path, stepping).serves


def test_a_thread_that_trains_has_steps_and_gains(tmp_path: Path) -> None:
    source = CONSUMER.source.replace("results.put(model(items.get()))", "loss = train_step(state)")
    trains = Program(source, CONSUMER.main, CONSUMER.threads, {"steps_by": "optimizer"})
    job = trains.window(tmp_path, BUSY | {m.JOB_STEPS: 20.0})
    assert job.job.serving is not None
    assert job.job.serving.by_threads
    assert not job.serves
    assert job.paced_by == "steps"


SLEEPS = """
import time
def watch(model):
    for episode in range(100):
        score(model)  # score
        time.sleep(1.0)  # sleep
watch(model)  # main
"""


@pytest.mark.parametrize("cores", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("counts", [False, True])
def test_a_sleep_is_no_loss_while_other_processes_of_the_job_work(
    cores: float, tmp_path: Path, *, counts: bool
) -> None:
    """Healthy twins: nobody works meanwhile, or hardly; then the loop could turn sooner."""
    # Who makes steps of its own is no helper, and has the cores all the same.
    helpers = () if counts else tuple(Helper(cores) for _ in range(2) if cores)
    means = BUSY | {m.JOB_STEPS: 1.0, m.JOB_CPU: 0.1 + 2 * cores, m.PROCESS_CPU: 0.1}
    rows = (("sleep main", None, None, 270, 270), ("score main", MODEL, MODEL, 30, 0))
    more = {"steps_by": "loop", "helpers": helpers}
    job = Program(SLEEPS, rows, more=more).window(tmp_path, means)
    assert job.host is not None
    assert any(row.frames[0].line == 6 for row in job.host.rows) is (cores < 0.5)
    assert isinstance(judge("host_code", job), Found) is (cores < 0.5)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("plt.pause(1 / 60)", Awaited.SLEEP),
        ("time.sleep(1)", Awaited.SLEEP),
        ("signal.pause()", Awaited.SIGNAL),
        ("sigwait([signal.SIGTERM])", Awaited.SIGNAL),
    ],
)
def test_a_plot_that_pauses_waits_for_no_signal(line: str, what: Awaited, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(f"{line}\n")
    assert awaited(Chain((CodeLine(str(file), 1, "<module>"),))) is what


def test_threads_that_were_not_sampled_are_not_made_up(tmp_path: Path) -> None:
    job = Program(FLASK.source, FLASK.main).window(tmp_path)
    assert job.host is None
    assert "not sampled" in as_json(diagnose(job)).host.unknown["rows"]
    assert isinstance(judge("host_code", job), NotChecked)
    _is_quiet(job)


def test_it_is_kept_with_the_window(tmp_path: Path) -> None:
    job = HTTP.window(tmp_path)
    again = load(dump(job))
    assert again.idles == pytest.approx(job.idles)
    assert again.serves
    assert again.job.stacks.samples == job.job.stacks.samples


ROUTES = {
    "Flask under gevent": ("@app.route('/predict', methods=['POST'])", "def predict():"),
    "FastAPI": ("@app.post('/predict')", "async def predict():"),
    "Django REST framework": ("@api_view(['POST'])", "def predict(request):"),
}


@pytest.mark.parametrize("style", ROUTES)
def test_a_function_that_a_route_names_answers_requests(style: str, tmp_path: Path) -> None:
    file = tmp_path / "app.py"
    mark, head = ROUTES[style]
    file.write_text(
        f"{mark}\n{head}\n    return model(x)\n@registry.get('model')\ndef train():\n    step()\n"
    )
    assert serves_at(CodeLine(str(file), 3, "predict"))
    assert not serves_at(CodeLine(str(file), 6, "train"))


def test_our_own_agents_are_no_work_of_the_jobs() -> None:
    means = {m.JOB_CPU: 0.055, m.JOB_AGENT_CPU: 0.02}
    polls = CodeLine(f"{LIB}/multiprocessing/popen_fork.py", 27, "poll")
    waits = StackSamples()
    waits.samples = 90
    waits.count(Chain((CodeLine("/u/run.py", 9, "main"),), polls), 90, 90, 90)
    still = window(means=means, stacks=waits, facts=FACTS, inside=True)
    assert not trains(still)
    assert is_silent("host_code", still)
    means[m.JOB_CPU] = 0.5
    assert trains(window(means=means, stacks=waits, facts=FACTS, inside=True))
