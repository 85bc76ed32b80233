"""Which lines of the user's code own the time."""
