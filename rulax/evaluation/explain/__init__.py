"""Analyses of what a rule does: one per file, each a function of recorded arrays that returns numbers with intervals."""
