"""A change tried in a running job: on and off in turns, measured against itself, taken back."""
