"""Traces of a running job: when to take one, by which way, and what becomes of it."""
