"""What experience is worth: returns, two-hot values, policies and normalisation, as plain functions of arrays."""
