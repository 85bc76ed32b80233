"""Whether a pid that the GPU driver names is the process that has this pid here."""

from __future__ import annotations

from whyidle.monitor.processes.procfs import ProcFs

# The inode of the first pid namespace is fixed in the kernel (PROC_PID_INIT_INO).
FIRST_NAMESPACE = "pid:[4026531836]"
_GPU_FILES = ("/libcuda.so", "/dev/nvidia")


def pids_match(fs: ProcFs, pid: int) -> bool:
    """Tell whether the driver's pid is ours: in a container it may be the host's."""
    if fs.namespace == FIRST_NAMESPACE:
        return True
    files = fs.mapped_files(pid) or set()
    return any(mark in file for file in files for mark in _GPU_FILES)
