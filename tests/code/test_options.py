"""From the argument of a call to the option, variable or constant that it comes from."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

import pytest

from whyidle.monitor.code.options import Options

FILE = "/job/train.py"


def how(*texts: str, value: str = "8", folder: str = "/job", names: tuple[str, ...] = ()) -> str:
    """Say how to set what ``made(...)`` is given in the first text."""
    files = (FILE, *(f"{folder}/{name}" for name in names))
    known = {file: dedent(text) for file, text in zip(files, texts, strict=True)}
    tree = ast.parse(known[FILE])
    (call,) = (
        x
        for x in ast.walk(tree)
        if isinstance(x, ast.Call) and isinstance(x.func, ast.Name) and x.func.id == "made"
    )
    options = Options(known)
    source = options._source(FILE)
    assert source is not None
    (own,) = (x for x in source.calls if isinstance(x.func, ast.Name) and x.func.id == "made")
    assert ast.dump(own) == ast.dump(call)
    found = options.of(own.args[0], FILE)
    return "" if found is None else found.to(value)


ARGPARSE = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("-j", "--num-workers", type=int, default=0)
"""


@pytest.mark.parametrize(
    ("said", "program"),
    [
        ("start with --num-workers 8", ARGPARSE + "made(parser.parse_args().num_workers)"),
        ("start with --num-workers 8", ARGPARSE + "a = parser.parse_args()\nmade(a.num_workers)"),
        (
            "start with --num-workers 8",
            ARGPARSE + "a, more = parser.parse_known_args()\nn = a.num_workers\nmade(int(n))",
        ),
        (
            "start with --num-workers 8",
            ARGPARSE
            + """
def loader(data, workers=0):
    made(workers)
def main():
    global args
    args = parser.parse_args()
    loader([], args.num_workers)
main()
""",
        ),
        (
            "start with --num-workers 8",
            ARGPARSE
            + """
class Trainer:
    def __init__(self, args):
        self.args = args
    def fit(self):
        made(self.args.num_workers)
Trainer(parser.parse_args()).fit()
""",
        ),
        (
            "start with --workers 8",
            """
            import click
            @click.command()
            @click.option("--workers", default=0)
            def main(workers):
                made(workers)
            """,
        ),
        (
            "start with --num-workers 8",
            """
            import typer
            app = typer.Typer()
            @app.command()
            def main(path: str, num_workers: int = 0):
                made(num_workers)
            """,
        ),
        (
            "start with --jobs 8",
            """
            from typing import Annotated
            import typer
            def main(workers: Annotated[int, typer.Option("--jobs")] = 0):
                made(workers)
            typer.run(main)
            """,
        ),
        (
            "start with --workers=8",
            """
            from absl import flags
            flags.DEFINE_integer("workers", 0, "how many")
            FLAGS = flags.FLAGS
            def main(argv):
                made(FLAGS.workers)
            """,
        ),
        (
            "start with --workers=8",
            """
            from absl import flags
            _WORKERS = flags.DEFINE_integer("workers", 0, "how many")
            def main(argv):
                made(_WORKERS.value)
            """,
        ),
        (
            "start with data.workers=8",
            """
            import hydra
            @hydra.main(config_path="conf")
            def main(cfg):
                loader(cfg.data)
            def loader(part):
                made(part.workers)
            """,
        ),
        (
            "set data.workers to 8 in conf.yaml",
            """
            from omegaconf import OmegaConf
            cfg = OmegaConf.load("conf.yaml")
            made(cfg.data.workers)
            """,
        ),
        (
            "set data.workers to 8 in conf.yaml",
            """
            import yaml
            def read():
                with open("conf.yaml") as file:
                    return yaml.safe_load(open("conf.yaml"))
            config = read()
            made(config["data"]["workers"])
            """,
        ),
        ("set WORKERS = 8 at train.py:2", "\nWORKERS = 0\nmade(WORKERS)"),
        ("set workers=8 at train.py:2", "\ndef f(x, workers=0):\n    made(workers)\nf(1)"),
        ("set n=8 at train.py:4", "\ndef f(n):\n    made(n)\nf(n=0)"),
        ('set "workers": 8 at train.py:2', '\nC = {"workers": 0}\nmade(C["workers"])'),
        (
            "set WORKERS=8 in the environment",
            'import os\nn = int(os.environ.get("WORKERS", "0"))\nmade(n)',
        ),
        ("set WORKERS=8 in the environment", 'import os\nmade(int(os.environ["WORKERS"]) or 2)'),
        (
            "set workers = 8 at train.py:5",
            """
            from dataclasses import dataclass
            @dataclass
            class Config:
                workers: int = 0
            def main(c):
                made(c.workers)
            main(Config())
            """,
        ),
        (
            "start with --workers 8",
            """
            from dataclasses import dataclass
            import tyro
            @dataclass
            class Config:
                workers: int = 0
            c = tyro.cli(Config)
            made(c.workers)
            """,
        ),
        (
            "start with --num_workers 8",
            """
            from transformers import HfArgumentParser
            class Config:
                num_workers: int = 0
            parser = HfArgumentParser((Config,))
            config, others = parser.parse_args_into_dataclasses()
            made(config.num_workers)
            """,
        ),
        (
            "set n=8 at train.py:7",
            """
            class Data:
                def __init__(self, n):
                    self.n = n
                def loader(self):
                    return made(self.n)
            Data(n=0).loader()
            """,
        ),
        # Not certain, or not set anywhere.
        ("", "import os\nmade(os.cpu_count())"),
        ("", "n = 0\nn = 2\nmade(n)"),
        ("", ARGPARSE + "import queue\nq = queue.Queue()\nmade(q.num_workers)"),
        ("", "def f(n):\n    made(n)\nf(n=0)\nf(n=4)"),
        ("", "def f(n):\n    made(n)\nf(*[1])"),
    ],
)
def test_where_a_value_is_set(said: str, program: str) -> None:
    assert how(program) == said


def test_a_switch_has_no_value() -> None:
    program = """
    import argparse
    parser = argparse.ArgumentParser()
    parser.add_argument("--pin", action="store_true")
    made(parser.parse_args().pin)
    """
    assert how(program, value="True") == "start with --pin"
    assert how(program, value="False") == "start without --pin"


def test_other_files_of_the_program(tmp_path: Path) -> None:
    options = """
    import argparse
    def get():
        parser = argparse.ArgumentParser()
        parser.add_argument("--workers", type=int)
        return parser.parse_args()
    WORKERS = 0
    """
    for program, said in {
        "from options import get\nargs = get()\nmade(args.workers)": "start with --workers 8",
        "from options import WORKERS\nmade(WORKERS)": "set WORKERS = 8 at options.py:7",
        "import options as o\nmade(o.WORKERS)": "set WORKERS = 8 at options.py:7",
        "def f(args):\n    made(args.workers)": "start with --workers 8",
    }.items():
        assert how(program, options, names=("options.py",)) == said
    main = "from train import load\nfrom options import get\nload(get().workers)"
    known = ("def load(n):\n    made(n)", main, options)
    assert how(*known, names=("main.py", "options.py")) == "start with --workers 8"
    # What is imported is read from beside the file.
    (tmp_path / "options.py").write_text(dedent(options))
    file = str(tmp_path / "train.py")
    text = "from options import get\nmade(get().workers)"
    tried = Options({file: text})
    source = tried._source(file)
    assert source is not None
    found = tried.of(source.calls[0].args[0], file)
    assert found is not None
    assert found.to("8") == "start with --workers 8"
