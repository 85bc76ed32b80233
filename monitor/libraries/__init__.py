"""What third-party code is, declared once: whose work a package's calls are, what a frame does."""
