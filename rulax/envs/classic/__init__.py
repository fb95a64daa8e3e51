"""Classic control with Gymnasium's physics, in which the physical constants are the task."""
