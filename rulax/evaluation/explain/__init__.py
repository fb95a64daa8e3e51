"""What a rule does: one analysis per file, each a function of recorded arrays that returns numbers with intervals."""
