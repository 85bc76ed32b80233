"""Getting the agent into a running job: a ladder of methods, one a file, the gentlest first."""
