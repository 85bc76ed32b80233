"""What a Prometheus server reads of this host: its GPUs, who holds them, and why they wait."""
