"""What is kept: run folders, rows, checkpoints and provenance, and readers that can only return good data."""
