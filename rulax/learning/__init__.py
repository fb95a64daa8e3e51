"""The inner loop: collect, store, sample, update, to the end of the budget."""
