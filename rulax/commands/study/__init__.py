"""`rulax study`: what can be set, what a study consists of, how it runs, what it shows."""
