"""What holds for every rule: its page, its test, its silence where nothing is measured."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rules.windows import ROOT, answer, judge, pairs, recorded, stacks, traced, window
from whyidle.monitor import rules
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import FRAMEWORKS, Found, SourceLine
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.diagnosis.diagnose import diagnose
from whyidle.monitor.diagnosis.ranking import CAUSES, OF_ALL
from whyidle.monitor.render.finding_text import DOCUMENTS, first_sentence, titles
from whyidle.monitor.rules import Rule
from whyidle.monitor.runs.aggregates import Compiled, ReadBack

HEADINGS = (
    "What it sees",
    "Why it costs",
    "How to fix",
    "When it is wrong",
    "Documents",
)
DOCUMENT = re.compile(r"D[1-5]( .+)?|beyond the documents")
BUILT = list(rules.load().values())
RULES = pytest.mark.parametrize("rule", BUILT, ids=lambda rule: rule.id)


@RULES
def test_its_page_has_the_same_parts_as_the_others(rule: Rule) -> None:
    assert tuple(re.findall(r"^## (.+)$", rule.page, re.MULTILINE)) == HEADINGS
    parts = re.split(r"^## .+$", rule.page, flags=re.MULTILINE)
    assert all(len(part.split()) > 3 for part in parts)


@RULES
def test_its_title_is_one_clause_that_fits_a_terminal(rule: Rule) -> None:
    assert len(rule.title) <= 60
    assert not rule.title.endswith(".")


@RULES
def test_it_has_a_test_of_its_own(rule: Rule) -> None:
    assert (Path(__file__).parent / f"test_{rule.id}.py").is_file()


@RULES
def test_it_cites_documents_and_offers_a_fix(rule: Rule) -> None:
    assert rule.documents
    assert all(DOCUMENT.fullmatch(each) for each in rule.documents)
    assert rule.fixes
    for framework, fix in rule.fixes.items():
        assert fix.text.endswith(".")
        assert len(first_sentence(fix.text)) <= 70
        # What is in Julia is run by one.
        if framework != "flux":
            ast.parse(fix.code)


@RULES
def test_it_finds_nothing_where_nothing_is_measured(rule: Rule) -> None:
    assert not isinstance(judge(rule.id, window()), Found)
    assert not isinstance(judge(rule.id, window(kind="file")), Found)


@RULES
def test_it_is_silent_on_a_healthy_job(rule: Rule) -> None:
    # Its GPU works 92% of the time, and nothing about it is worth a change.
    assert not isinstance(judge(rule.id, traced("h100_qwen05b")), Found)


@RULES
def test_it_names_no_line_that_is_not_the_users(rule: Rule) -> None:
    for name in pairs(rule.id):
        verdict = judge(rule.id, recorded(f"{rule.id}/before_{name}"))
        assert isinstance(verdict, Found)
        assert all(f"demo_workloads/{rule.id}/" in place.file for place in verdict.where)


@pytest.mark.parametrize("symptom", CAUSES)
def test_causes_and_symptoms_are_rules_that_there_are(symptom: str) -> None:
    assert {symptom, *CAUSES[symptom], *OF_ALL} <= rules.load().keys()
    assert symptom not in CAUSES[symptom]


SUM = "f(1) + " * 1200 + "1"
CHAIN = "".join(f"        elif x == {n}:\n            pass\n" for n in range(900))
# A sum, and a choice, that are nested as deep as Python reads them.
DEEP = f"""\
import jax
def step(x):
    for x in {SUM}:
        if x is None:
            pass
{CHAIN}
        x = g(x, {SUM})
    return x
"""


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_code_that_is_nested_deep_makes_no_rule_fail(tmp_path: Path, framework: str) -> None:
    file = tmp_path / "train.py"
    file.write_text(DEEP)
    last = DEEP.count("\n") - 1
    lines = tuple(SourceLine(str(file), n, "step", 0.3) for n in (1, 3, last))
    calls = {"PjitFunction(step)": 1.0, "PjitFunction(g)": 64.0}
    if framework == "torch":
        calls = {"AddmmBackward0": 64.0, "torch::autograd::AccumulateGrad": 4.0}
    large = {"name": "jit_step", "operations": 9000, "products": {"f32": 99}}
    job = window(
        answer({Slice.COMPUTE: 0.5, Slice.IDLE_DISPATCH: 0.5}, calls=calls),
        means={m.JOB_STEPS: 10.0, m.PROCESS_SYNCS: 10.0},
        facts={framework: {"backend": "cpu", "largest_executables": [large]}},
        lines=lines,
        leaves=lines,
        stacks=stacks(*((line, (), 10) for line in lines)),
        compiled=(Compiled("jax", "step", 1, 10**10, 0, None, str(file), last),),
        reads=(ReadBack("item", str(file), last, "step", 9, 9),),
        inside=True,
    )
    assert not diagnose(job).failed


def test_the_rules_need_nothing_heavy() -> None:
    # They are loaded in every recorder, whose memory and start-up a job pays for.
    source = (
        "import sys\n"
        "import whyidle.monitor.recording.faults\n"
        "from whyidle.monitor import rules\n"
        "assert rules.load()\n"
        "heavy = {'numpy', 'rich', 'pynvml'} & sys.modules.keys()\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def advice() -> dict[str, set[str]]:
    """Return the faults that docs/documents.md lists for each section: {"D1 §2": {...}}."""
    page = (ROOT / "docs" / "documents.md").read_text()
    rows = re.findall(r"^\| (D\d[^|]*) \|[^|]*\| (`[^|]*`) \|$", page, re.MULTILINE)
    return {where: set(re.findall(r"`(\w+)`", faults)) for where, faults in rows}


def test_all_advice_of_the_documents_has_a_rule_that_cites_it() -> None:
    assert len(advice()) > 25
    for where, faults in advice().items():
        for fault in faults:
            cited = rules.load()[fault].documents
            assert any(each.startswith(where[:2]) for each in cited), (where, fault)


@pytest.mark.parametrize("rule", rules.load().values(), ids=lambda rule: rule.id)
def test_what_a_rule_cites_is_advised_there(rule: Rule) -> None:
    listed = {where for where, faults in advice().items() if rule.id in faults}
    for cited in set(rule.documents) - {"beyond the documents"}:
        document, _, section = cited.partition(" ")
        first, _, last = section.removeprefix("§").partition("-")
        sections = {f"§{n}" for n in range(int(first), int(last) + 1)} if last else {section}
        wanted = {f"{document} {each}".strip() for each in sections}
        assert all(any(one.startswith(each) for one in listed) for each in wanted), (cited, listed)


def test_each_article_belongs_to_frameworks_that_there_are() -> None:
    known = {name for name, _ in FRAMEWORKS.items()}
    for title, whose in DOCUMENTS.values():
        assert title
        assert whose
        assert whose <= known
    # An article is shown to those whom it is about.
    assert list(titles(["D2 §4"], ["flux"])) == [DOCUMENTS["D2"][0]]
    assert list(titles(["D2 §4"], ["pytorch"])) == []
