"""The probe ``tensorflow``: what no counter outside can tell of a job that runs on TensorFlow."""
