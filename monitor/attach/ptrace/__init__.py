"""Enters a running CPython on x86-64 Linux by ptrace, one step at a time, each of them whole.

A thread of the job is changed by one SETREGS alone, at the end of which lies a frame of the
kernel's own `rt_sigreturn`: it brings every register back without us. So whoever ends us, and when,
the job goes on as it was.
"""
