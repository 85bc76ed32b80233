"""Traces of a running job: when one is taken, by which way, and what becomes of it."""
