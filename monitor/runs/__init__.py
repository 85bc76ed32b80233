"""A recording read back: what it says as a whole, and whether it still runs."""
