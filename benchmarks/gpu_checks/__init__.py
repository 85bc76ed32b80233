"""The checks of gpu_check.py: a file with ``SECONDS``, the most it takes, and ``run`` is one."""
