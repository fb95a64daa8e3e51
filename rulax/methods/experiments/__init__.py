"""The experiments of each method: sizes, published figures, goals and baselines. The algorithms are one folder up."""
