"""What the devices ran, and what the names of kernels say."""
