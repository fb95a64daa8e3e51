"""What learns: torsos read observations, cores remember, heads predict what a rule asks for."""

from rulax.agents.agent import Agent, make_agent

__all__ = ["Agent", "make_agent"]
