"""Two runs or traces side by side: what is faster, by how much beyond chance, and why."""

from whyidle.monitor.compare.comparison import compare
from whyidle.monitor.compare.opening import of_analysis, of_run, of_window
from whyidle.monitor.compare.result import Comparison, Verdict
from whyidle.monitor.compare.sides import Side

__all__ = ["Comparison", "Side", "Verdict", "compare", "of_analysis", "of_run", "of_window"]
