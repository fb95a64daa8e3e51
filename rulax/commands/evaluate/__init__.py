"""`rulax evaluate`: what trained agents earn in separate episodes."""
