"""What runs inside the watched process: Python 3.9 or later, and its standard library alone."""
