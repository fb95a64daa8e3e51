"""The inner loop: act, store, sample, update, from birth to the end of the budget."""
