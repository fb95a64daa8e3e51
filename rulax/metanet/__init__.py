"""The meta-network of a discovered rule: from experience and predictions to targets for the predictions."""
