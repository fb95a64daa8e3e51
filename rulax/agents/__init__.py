"""What learns: torsos read observations, cores remember, heads predict what a rule asks for."""

from rulax.agents.agent import CategoricalAgent, make_agent
from rulax.agents.base import Agent, AgentMaker, BaseAgent, Carried, PerStream, WrappedAgent

__all__ = ["Agent", "AgentMaker", "BaseAgent", "Carried", "CategoricalAgent", "PerStream", "WrappedAgent", "make_agent"]
