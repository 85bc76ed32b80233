"""``monitor demo``: a fault before and after its fix, run here, predicted and measured."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import click

from whyidle.monitor import rules
from whyidle.monitor.core.errors import Exit, Problem, UsageProblem
from whyidle.monitor.core.interrupts import handled
from whyidle.monitor.core.paths import database
from whyidle.monitor.demo import pairs as demos
from whyidle.monitor.demo.answer import as_json as answer
from whyidle.monitor.demo.outcome import Outcome, of_runs
from whyidle.monitor.demo.pairs import SIDES, Pair, installed
from whyidle.monitor.demo.watched import NO_TRACES, TRACES, Failed, Stopped, Watched, watch
from whyidle.monitor.render import jsonl
from whyidle.monitor.render.console import say
from whyidle.monitor.render.demo import Progress, closing, screen
from whyidle.monitor.render.demo_list import listing
from whyidle.monitor.runs.pruning import delete
from whyidle.monitor.store import Writer

# To start Python, the framework and the recorder, and to diagnose.
AROUND = 4.0


def run(
    *,
    fault: str | None,
    framework: str | None,
    everything: bool,
    only_list: bool,
    seconds: float | None,
    rounds: int,
    no_dashboard: bool,
    as_json: bool,
) -> None:
    """Run the pairs that are meant, or list them."""
    if fault is not None and everything:
        raise UsageProblem("A FAULT names one pair, and --all means all.", "Give one of them.")
    if only_list:
        _list(demos.all_pairs(), framework, as_json=as_json)
        return
    chosen = _chosen(fault, framework, everything=everything)
    outcomes = _run_all(chosen, Asked(seconds, rounds), as_json=as_json)
    if not as_json:
        known = _commands()
        if no_dashboard:
            known = [name for name in known if name != "dashboard"]
        click.echo(closing(outcomes, known, database()))


class Asked(NamedTuple):
    """How long, and how often."""

    # ``None``: for as long as each fault takes to show.
    seconds: float | None
    rounds: int


def _list(pairs: list[Pair], framework: str | None, *, as_json: bool) -> None:

    titles = {name: rule.title for name, rule in rules.load().items()}
    pairs = [pair for pair in pairs if framework in {None, pair.framework}]
    if not as_json:
        click.echo(listing(pairs, titles))
        return

    rows = [
        {
            "fault": pair.name,
            "framework": pair.framework,
            "faults": list(pair.faults),
            "titles": [titles.get(each, each) for each in pair.faults],
            "installed": installed(pair.framework),
            "about": pair.about,
            "before": str(pair.script("before")),
            "after": str(pair.script("after")),
        }
        for pair in pairs
    ]
    click.echo(jsonl.listing("demos", rows))


def _chosen(fault: str | None, framework: str | None, *, everything: bool) -> list[Pair]:
    """Return the pairs to run; what cannot run here is left out where others can."""
    every = demos.all_pairs()
    if fault is not None:
        found = [demos.named(fault, framework, every)]
    elif everything:
        found = every
    else:
        found = [demos.named(name, tool, every) for name, tool in demos.CURATED]
    found = [pair for pair in found if framework in {None, pair.framework}]
    lacking = sorted({p.framework for p in found if not demos.installed(p.framework)})
    runnable = [pair for pair in found if pair.framework not in lacking]
    if lacking and not runnable:
        raise demos.missing(lacking)
    if lacking:
        left = ", ".join(pair.name for pair in found if pair.framework in lacking)
        problem = demos.missing(lacking)
        say(f"{problem.what} Left out: {left}.", problem.next_step)
    return runnable


def _commands() -> list[str]:
    """Return the commands that there are: one whose part is not built is not listed."""
    context = click.get_current_context().find_root()
    group = context.command
    return group.list_commands(context) if isinstance(group, click.Group) else []


def _run_all(chosen: list[Pair], asked: Asked, *, as_json: bool) -> list[Outcome]:
    """Run the pairs one after the other; what fails in one does not cost the others."""
    store = database()
    # What cannot be kept is not worth running.
    Writer.open(store).close()
    outcomes: list[Outcome] = []
    problem: Problem | None = None
    progress = Progress()
    with _interruptible():
        for i, pair in enumerate(chosen):
            what = f"{i + 1}/{len(chosen)} {pair.name} ({pair.framework})"
            try:
                outcome = _run(pair, asked, store, progress, what)
            except Problem as error:
                problem = error
                if len(chosen) > 1:
                    say(error.what, error.next_step)
                continue
            finally:
                progress.end()
            outcomes.append(outcome)
            _show(outcome, as_json=as_json)
    if problem is not None and (len(chosen) == 1 or not outcomes):
        raise problem
    return outcomes


def _show(outcome: Outcome, *, as_json: bool) -> None:
    if as_json:
        click.echo(jsonl.line(answer(outcome)))
        return

    click.echo(f"{screen(outcome)}\n", color=True)


def _run(pair: Pair, asked: Asked, store: Path, progress: Progress, what: str) -> Outcome:
    """Run both sides, in turns; of one that is cut, or fails, nothing stays."""
    done: list[Watched] = []
    seconds = asked.seconds or pair.seconds
    try:
        for number in range(2 * asked.rounds):
            turn, side = number // 2 + 1, SIDES[number % 2]
            of = f", round {turn} of {asked.rounds}" if asked.rounds > 1 else ""
            progress.begin(f"{what} {side} the fix{of}", seconds + AROUND)
            label, traces = f"{pair.name} {side}", TRACES if turn == 1 else NO_TRACES
            done.append(watch(pair.script(side), seconds, label, progress, traces=traces))
    except (Stopped, KeyboardInterrupt) as stopped:
        progress.end()
        _forget(store, stopped.run if isinstance(stopped, Stopped) else None)
        kept = f" Kept: {_runs(done)}, whole." if done else ""
        say(f"The demo was stopped; its processes have ended.{kept}")
        raise SystemExit(Exit.INTERRUPTED) from None
    except Failed as failed:
        progress.end()
        _forget(store, failed.run)
        if done:
            say(f"Kept: {_runs(done)}, whole.")
        raise
    return of_runs(store, pair, list(zip(done[::2], done[1::2], strict=True)))


def _forget(store: Path, run: int | None) -> None:
    """Delete half a run."""
    if run is not None:
        with contextlib.suppress(Problem):
            delete(store, [run])


def _runs(done: list[Watched]) -> str:
    numbers = ", ".join(str(each.run) for each in done)
    return f"run{'s' * (len(done) > 1)} {numbers}"


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let a closed terminal, and who asks us to end, do what Ctrl-C does."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with handled((signal.SIGTERM, signal.SIGHUP), stop):
        yield
