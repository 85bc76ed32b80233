"""Numbers and words that every package may use, each declared once."""
