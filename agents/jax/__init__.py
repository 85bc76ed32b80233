"""The probe ``jax``: what no counter outside can tell of a job that runs on JAX."""
