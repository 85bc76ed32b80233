"""Who a process is, what it started, and what to call it; read from /proc without touching it."""
