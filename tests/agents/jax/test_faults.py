"""Each planted fault shows in a signal of the agent's, and is gone where it was mended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.agents.jax.jobs import FAULT, JAX, Job, job
from whyidle.agents import wire

STEPS = 20


def steps(job: Job) -> dict[str, float]:
    """Return the totals per step."""
    before = job.gauges()
    job.step(STEPS)
    after = job.gauges()
    names = (wire.COMPILES, wire.READ_BYTES, wire.SYNCS, wire.COMPILE_NS)
    return {name: (after[name] - before[name]) / STEPS for name in names}


def all_known(facts: dict[str, Any]) -> bool:
    """Tell whether every program was inspected completely."""
    compiled = facts.get("largest_executables", [])
    names = facts.get("executables_by_name", {})
    return bool(compiled) and facts["executables_known"] == facts["executables"] and bool(names)


def has(name: str) -> Any:
    return lambda facts: (
        all_known(facts) and any(p["name"] == name for p in facts["largest_executables"])
    )


def program(facts: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(p for p in facts["largest_executables"] if p["name"] == name)
    return found


def pair(name: str, folder: Path) -> list[str]:
    for side in ("before", "after"):
        (folder / side).mkdir()
    return [FAULT.format(name=name, fault=fault) for fault in (True, False)]


def test_a_step_that_compiles_each_time_shows_why(tmp_path: Path) -> None:
    before, after = pair("retrace", tmp_path)
    with job(before, tmp_path / "before", JAX) as bad:
        assert steps(bad)[wire.COMPILES] >= 1
        facts = bad.facts(lambda f: f.get("executables_by_name", {}).get("jit_train", 0) > STEPS)
        compiled = [r for r in bad.records("compile") if r[3] == "train"]
        assert len(compiled) >= STEPS
        assert {r[2] for r in compiled} == {"jax"}
        assert compiled[0][5] is None
        assert "now float32[" in compiled[-1][5]
        assert "at x: " in compiled[-1][5]
        file, line, function = compiled[-1][6]
        assert (Path(file).name, function) == ("programs.py", "step")
        assert "train(state[0]" in Path(file).read_text().splitlines()[line - 1]
        assert all(r[4] > 0 and not r[7] for r in compiled)
    with job(after, tmp_path / "after", JAX) as good:
        assert steps(good)[wire.COMPILES] == 0
        facts = good.facts(has("jit_train"))
        assert facts["executables_by_name"]["jit_train"] == 1


def test_a_loop_that_is_written_out_has_many_operations(tmp_path: Path) -> None:
    found = []
    for side, source in zip(("before", "after"), pair("unrolled", tmp_path), strict=True):
        with job(source, tmp_path / side, JAX) as it:
            found.append(program(it.facts(has("jit_train")), "jit_train"))
    before, after = found
    assert before["operations"] > 3 * after["operations"]
    assert before["loops"] == 0
    assert after["loops"] > 0
    assert before["whole"]


def test_the_forward_pass_done_twice_is_counted_twice(tmp_path: Path) -> None:
    found = []
    for side, source in zip(("before", "after"), pair("twice", tmp_path), strict=True):
        with job(source, tmp_path / side, JAX) as it:
            facts = it.facts(has("jit_descend"))
            found.append(sum(p["flops"] or 0 for p in facts["largest_executables"]))
            update = program(facts, "jit_descend")
            # The parameters are donated.
            assert update["aliased_bytes"] == 4 * (128 * 128 + 128) * 4
            assert "float32" not in update["products"]
            compute = facts["largest_executables"][0]
            assert compute["products"].get("f32", 0) > 0
            assert compute["aliased_bytes"] == 0
            assert compute["argument_bytes"] > 4 * 128 * 128 * 4
    assert found[0] > 1.2 * found[1]


def test_what_is_read_back_is_counted_and_placed(tmp_path: Path) -> None:
    before, after = pair("large_read", tmp_path)
    with job(before, tmp_path / "before", JAX) as bad:
        figures = steps(bad)
        assert 4e6 <= figures[wire.READ_BYTES] < 8.1e6
        places = bad.until(lambda seen: [p for r in seen if r[0] == "reads" for p in r[3]])
        assert all(kind == "array" for _, _, kind, _ in bad.records("reads"))
        count, took, frame = places[0]
        assert count >= 1
        assert took > 0
        assert (Path(frame[0]).name, frame[2]) == ("programs.py", "step")
    with job(after, tmp_path / "after", JAX) as good:
        figures = steps(good)
        assert figures[wire.READ_BYTES] == 4
        assert figures[wire.SYNCS] == 1


def test_a_step_that_is_not_compiled_has_many_programs(tmp_path: Path) -> None:
    found = []
    for side, source in zip(("before", "after"), pair("eager", tmp_path), strict=True):
        with job(source, tmp_path / side, JAX) as it:
            facts = it.facts(all_known)
            found.append(facts["executables"])
            assert ("jit_train" in facts["executables_by_name"]) is (side == "after")
    assert found[0] > 2 * found[1]
