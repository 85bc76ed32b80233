"""One recording: the clock, what is read at each tick, and whose GPUs they are."""
