"""What every room may use: numbers and words that are declared once."""
