"""The link to an agent in a job: its spool, read with care, its control socket, its records."""
