"""What the user's source says, by file and line: the one place that reads it. Nothing is run."""
