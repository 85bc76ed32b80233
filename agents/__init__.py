"""What runs inside the watched process: standard library only, Python 3.9+, nothing of ours."""
