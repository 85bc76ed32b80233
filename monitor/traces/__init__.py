"""A profiler's file -> one columnar ``Trace`` -> an account of every nanosecond.

Readers (``kineto``, ``xplane``) fill the same columns; everything after them is the same for all.
"""
