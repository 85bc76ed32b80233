"""What is measured of one process: from the records of its agent, and of its samples."""
