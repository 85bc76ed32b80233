"""The stack of a running job's main thread, read from outside: the job never stops or notices."""
