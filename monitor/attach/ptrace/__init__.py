"""Enters a running CPython on x86-64 Linux by ptrace, one step at a time, each of them whole.

A thread of the job is changed by a single SETREGS. The calls that this begins end in a frame of the
kernel's own `rt_sigreturn`, which restores every register without us. Whatever ends us, and when,
the job goes on as before.
"""
