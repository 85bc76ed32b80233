"""Screens of the command line: one line a tick, a live view, the summary, JSON."""
