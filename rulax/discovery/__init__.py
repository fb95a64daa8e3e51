"""The outer loop: populations of agents, what becomes of them, and the gradient of that with respect to their rule."""
