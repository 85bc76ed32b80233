"""Which faults a run shows: all rules over a window, and what stays true while it goes on."""
