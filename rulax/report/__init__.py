"""Pages that a person would rather look at than read: one self-contained HTML file for each run, comparison or explanation."""
