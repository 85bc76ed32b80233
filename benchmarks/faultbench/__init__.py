"""Ordinary programs, faults put into them, and what the product says of each."""
