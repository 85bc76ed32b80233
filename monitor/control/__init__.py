"""What a person asks of a recording that runs: over a socket beside the store, and nothing else."""
