"""``monitor demo``: a fault before and after its fix, run here, predicted and measured."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING, NamedTuple

import click

from whyidle.monitor.commands import _options as options
from whyidle.monitor.commands._output import say
from whyidle.monitor.core.errors import Exit, Problem, UsageProblem
from whyidle.monitor.core.interrupts import handled

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType

    from whyidle.monitor.demo.outcome import Outcome
    from whyidle.monitor.demo.pairs import Pair
    from whyidle.monitor.demo.watched import Watched
    from whyidle.monitor.render.demo import Progress

FRAMEWORKS = ("jax", "torch")
# A program that trains for less shows nothing of its steps.
LEAST = 0.5
# To start Python, the framework and the recorder, and to diagnose.
AROUND = 4.0


class Asked(NamedTuple):
    """How long, and how often."""

    # ``None``: for as long as each fault takes to show.
    seconds: float | None
    rounds: int


_EPILOG = """\b
Three faults, one after the other:  monitor demo
One that you know:                  monitor demo input_starved
All there are:                      monitor demo --list"""


@click.command(epilog=_EPILOG)
@click.argument("fault", required=False)
@click.option("--framework", type=click.Choice(FRAMEWORKS), metavar="jax|torch",
              help="Only with this one.")  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="Run every pair; that takes a while.")
@click.option("--list", "only_list", is_flag=True, help="List the faults, and run none.")
@click.option("--seconds", type=options.Finite(min=LEAST), metavar="S",
              help="Train for so long, before and after (default: as long as the fault takes to"
              " show, 7 to 18).")  # fmt: skip
@click.option("--rounds", type=click.IntRange(1, 20), default=1, show_default=True, metavar="N",
              help="Run both sides so often, in turns: how sure the speed-up is.")  # fmt: skip
@click.option("--no-dashboard", is_flag=True, help="Say nothing of the dashboard at the end.")
@options.as_json
def command(
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
    """Run a small training job with a fault, then with the fix, and compare.

    Both are recorded as `monitor run` does: the fault is found with its line of code, the speed-up
    is predicted, the fix applied, and the speed-up measured here. Without FAULT three are shown.
    With --json there is one object a line for each fault.
    """
    from whyidle.monitor.demo import pairs as demos

    if fault is not None and everything:
        raise UsageProblem("A FAULT names one pair, and --all means all.", "Give one of them.")
    if only_list:
        _list(demos.all_pairs(), framework, as_json=as_json)
        return
    chosen = _chosen(fault, framework, everything=everything)
    outcomes = _run_all(chosen, Asked(seconds, rounds), as_json=as_json)
    if not as_json:
        from whyidle.monitor.core.paths import database
        from whyidle.monitor.render.demo import closing

        known = _commands()
        if no_dashboard:
            known = [name for name in known if name != "dashboard"]
        click.echo(closing(outcomes, known, database()))


def _list(pairs: list[Pair], framework: str | None, *, as_json: bool) -> None:
    from whyidle.monitor import rules
    from whyidle.monitor.demo.pairs import installed

    titles = {name: rule.title for name, rule in rules.load().items()}
    pairs = [pair for pair in pairs if framework in {None, pair.framework}]
    if not as_json:
        from whyidle.monitor.render.demos import listing

        click.echo(listing(pairs, titles))
        return
    from whyidle.monitor.render import jsonl

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
    from whyidle.monitor.demo import pairs as demos

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
    """Return the commands that there are: one whose part is not built is not told of."""
    context = click.get_current_context().find_root()
    group = context.command
    return group.list_commands(context) if isinstance(group, click.Group) else []


def _run_all(chosen: list[Pair], asked: Asked, *, as_json: bool) -> list[Outcome]:
    """Run the pairs one after the other; what fails in one does not cost the others."""
    from whyidle.monitor.core.paths import database
    from whyidle.monitor.render.demo import Progress
    from whyidle.monitor.store import Writer

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
        from whyidle.monitor.demo.answer import as_json as told
        from whyidle.monitor.render import jsonl

        click.echo(jsonl.line(told(outcome)))
        return
    from whyidle.monitor.render.demo import screen

    click.echo(f"{screen(outcome)}\n", color=True)


def _run(pair: Pair, asked: Asked, store: Path, progress: Progress, what: str) -> Outcome:
    """Run both sides, in turns; of one that is cut, or fails, nothing stays."""
    from whyidle.monitor.demo.outcome import of_runs
    from whyidle.monitor.demo.pairs import SIDES
    from whyidle.monitor.demo.watched import NO_TRACES, TRACES, Failed, Stopped, watch

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
    from whyidle.monitor.runs.pruning import delete

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
