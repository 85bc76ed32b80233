"""Where the time of a device goes: every instant gets one cause."""
