"""`rulax play`: watch a trained agent."""
