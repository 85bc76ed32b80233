"""Stacks of the job, sampled from outside on a thread of ours."""
