"""The network of a discovered rule: it reads what happened and what was predicted, and says what should have been predicted."""
