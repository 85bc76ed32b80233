"""What is known of a job: typed questions to a recording, a trace, or both."""
