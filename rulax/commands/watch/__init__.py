"""`rulax watch`: what can be set, how it is set up, how it runs, what it shows."""
