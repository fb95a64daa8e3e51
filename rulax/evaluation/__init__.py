"""How good the results are: scores, statistics with their uncertainty, exact references, and explanations of rules."""
