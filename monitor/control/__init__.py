"""Requests from a person to a running recording, over a socket beside the store."""
