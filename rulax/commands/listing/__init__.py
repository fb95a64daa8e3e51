"""`rulax envs`, `rules`, `runs` and `board`: what there is."""
