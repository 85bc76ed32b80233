"""One module, one command: its options and its help. ``app/`` does the work."""
