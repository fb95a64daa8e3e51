"""What came of it: scores, and statistics that say how far they can be trusted."""
