"""The probe ``torch``: what no counter outside can tell of a job that runs on PyTorch."""
