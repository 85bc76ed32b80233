"""Many hosts, as a Prometheus server or VictoriaMetrics knows them: what they lose, and to whom."""
