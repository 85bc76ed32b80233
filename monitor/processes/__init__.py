"""A process's identity, children and name, read from /proc without touching it."""
