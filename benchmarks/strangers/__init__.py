"""Public programs as their authors left them, and what is said of each."""
