"""What an agent is: the methods that acting and learning call, and what of an agent is trained.

An agent is one equinox module of arrays. `split` divides those arrays in two:

* **trained**: floating-point arrays. The inner gradient, the optimiser and the slow copy see these and nothing else.
* **carried**: everything inside a `Carried`, and every array that has no gradient anyway (integers, booleans, random keys):
  episodic tables, counts, running statistics. They are saved, restored, stacked and copied with the agent, but never averaged.

Arrays that are carried change at one moment: when an unroll has been collected and before the next update. The learner then calls
`agent.written(experience, episodes)` through `write`, once per unroll and for all streams of the agent together. At that moment an
agent may replace trained arrays as well, such as the rows of a table that gradients refine afterwards. The slow copy and the
optimiser's state are not told: they keep what they held for the rows that were replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, Self, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

from rulax.agents.distributions import sample_choice
from rulax.envs.base import Episode
from rulax.settings import Network
from rulax.types import Array, Experience, Head, Policy, Predictions, PyTree


class Agent(Protocol):
    """The methods of an agent; `act` and `initial_memory` serve acting, the others learning. Axes as in `types.py`."""

    def initial_memory(self, num_streams: int) -> PyTree:
        """Memory before anything was seen, [B, ...]; () if there is none."""

    def act(self, observation: PyTree, first: Array, memory: PyTree) -> tuple[Policy, PyTree]:
        """The policy for one observation per stream, and the memory after it.

        Args:
            observation: [B, ...].
            first: [B] int8, what starts at the observation (`types.Level`): leaves of memory of that level are cleared before it.
            memory: [B, ...], what was returned for the observation before.

        Returns:
            The policy, logits [B, A] or whatever `sample` understands, and the memory [B, ...].
        """

    def sample(self, key: Array, policy: Policy) -> Array:
        """Draw actions from policies: int32 [B] from logits [B, A], [B, D] where an action has D dimensions, or float32 [B, D]."""

    def remember(self, experience: Experience) -> PyTree:
        """The memory [B, ...] after all observations but the last, which is where acting goes on from."""

    def embed(self, experience: Experience) -> Any:
        """Whatever can be computed before an action is chosen, for each of the T + 1 observations: leaves [T+1, B, ...].

        Only `predict` and `predict_taken` of the same agent read it, so its form is the agent's own business.
        """

    def predict(self, embedded: Any) -> Predictions:
        """All predictions for all actions: per state [..., size], per action [..., A, size] or [..., D, A, size]."""

    def predict_taken(self, embedded: Any, action: Array) -> Predictions:
        """All predictions; those per action only at the action given: [..., size] or [..., D, size]."""

    def written(self, experience: Experience, episodes: Episode) -> tuple[Self, Experience]:
        """What the agent keeps of an unroll, and the experience that it wants to learn from.

        Called once after every unroll of a life, in order, whether an update follows or not (the warm-up of a replay buffer, or the
        validation of discovery), and never for experience that is replayed. So an episode that spans several unrolls can be put
        together from what the agent keeps for each stream: stream b of one call is stream b of the next. An episode may also be
        abandoned (a host environment that failed, a resumed run): then `first` is not 0 where no episode had ended before.

        Args:
            experience: the unroll [T, B] as the environment paid for it; T may differ from call to call.
            episodes: [T, B], where `ended` the return and length of the whole episode that ended with that step.

        Returns:
            The agent, with some of its arrays replaced, and the experience that is stored and learned from: the one given, or one
            with other rewards (an exploration bonus), or with steps marked invalid. Reported returns stay the environment's own.

            Arrays that are replaced, trained ones included, are data to a meta-gradient: nothing flows through any part of them to
            earlier updates. Arrays that stay the same should be returned as the same objects, as `equinox.tree_at` does.
        """


class AgentMaker(Protocol):
    """Makes a fresh agent; `make_agent` is the usual one, and a `Recipe` may name another.

    One that a rule of the registry names may have more arguments, keyword-only and each with a default: options of that rule.
    """

    def __call__(
        self,
        key: Array,
        observation: PyTree,
        num_actions: int,
        heads: Mapping[str, Head],
        network: Network,
        action_dimensions: int = 0,
        num_streams: int = 1,
        real_dimensions: int = 0,
    ) -> Agent:
        """A fresh agent.

        Args:
            key: randomness for its arrays.
            observation: shapes and dtypes of one observation.
            num_actions: choices per action, or per dimension of an action.
            heads: what the rule needs it to predict.
            network: sizes.
            action_dimensions: D, or 0 where an action is one choice.
            num_streams: B, the streams that the agent acts in, for agents that keep something for each of them.
            real_dimensions: D, where an action is D real numbers instead, distributed as `network.action_distribution` says; else
                0, and then it is not passed on at all.
        """


class BaseAgent(eqx.Module):
    """An equinox module with the methods that most agents share: no memory, nothing written."""

    def initial_memory(self, num_streams: int) -> PyTree:
        return ()

    def sample(self, key: Array, policy: Policy) -> Array:
        return sample_choice(key, policy)

    def remember(self, experience: Experience) -> PyTree:
        return experience.memory

    def written(self, experience: Experience, episodes: Episode) -> tuple[Self, Experience]:
        return self, experience


class WrappedAgent(eqx.Module):
    """An agent around another: the same in all respects; subclasses change something about it."""

    agent: Agent

    def initial_memory(self, num_streams: int) -> PyTree:
        return self.agent.initial_memory(num_streams)

    def act(self, observation: PyTree, first: Array, memory: PyTree) -> tuple[Policy, PyTree]:
        return self.agent.act(observation, first, memory)

    def sample(self, key: Array, policy: Policy) -> Array:
        return self.agent.sample(key, policy)

    def remember(self, experience: Experience) -> PyTree:
        return self.agent.remember(experience)

    def embed(self, experience: Experience) -> Any:
        return self.agent.embed(experience)

    def predict(self, embedded: Any) -> Predictions:
        return self.agent.predict(embedded)

    def predict_taken(self, embedded: Any, action: Array) -> Predictions:
        return self.agent.predict_taken(embedded, action)

    def written(self, experience: Experience, episodes: Episode) -> tuple[Self, Experience]:
        agent, experience = self.agent.written(experience, episodes)
        # `tree_at` leaves all other arrays the same objects, by which `write` sees what was replaced.
        return eqx.tree_at(lambda wrapper: wrapper.agent, self, agent), experience


# -- what is trained, and what is carried -----------------------------------------------------------------------------------------

AnyAgent = TypeVar("AnyAgent", bound=Agent)


class Carried(eqx.Module):
    """A part of an agent that no gradient touches, whatever its dtype."""

    value: PyTree


class PerStream(Carried):
    """A carried part with an entry for each stream that the agent acts in, [B, ...], such as the steps of unfinished episodes.

    It belongs to the streams: where an agent is copied without them (`learning/members.py: exploit`), it stays with them.
    """


def split(agent: AnyAgent) -> tuple[AnyAgent, AnyAgent]:
    """The trained part of an agent and the carried part: the agent twice, each with None where the other has its arrays."""
    return eqx.partition(agent, is_trained(agent))


def is_trained(agent: Agent) -> PyTree:
    """For every array of an agent, whether it is trained."""

    def mark(node: Any) -> Any:
        if isinstance(node, Carried):
            return jax.tree.map(lambda leaf: False, node)
        # No derivative exists for integers, booleans and keys, so `jax.grad` would refuse them.
        return jnp.issubdtype(node.dtype, jnp.inexact)

    return jax.tree.map(mark, agent, is_leaf=lambda node: isinstance(node, Carried))


def join(trained: AnyAgent, carried: AnyAgent) -> AnyAgent:
    """The agent that `split` divided."""
    return eqx.combine(trained, carried)


def write(agent: AnyAgent, experience: Experience, episodes: Episode) -> tuple[AnyAgent, Experience, AnyAgent]:
    """Let an agent write down an unroll: see `Agent.written` for the arguments.

    Returns:
        The agent after it; the experience to learn from; and the arrays that were replaced, as an agent with None for all others,
        so that `overwrite` can replace them again when a recorded window is repeated.
    """
    after, kept = agent.written(experience, episodes)
    # What is written is data, like the experience that it comes from: a meta-gradient must not reach the rule through a table.
    # Identity, not equality: values are not known while tracing.
    replaced = jax.tree.map(lambda new, old: None if new is old else jax.lax.stop_gradient(new), after, agent)
    kept = jax.tree.map(lambda new, old: new if new is old else jax.lax.stop_gradient(new), kept, experience)
    return overwrite(agent, replaced), kept, replaced


def overwrite(agent: AnyAgent, replaced: PyTree) -> AnyAgent:
    """The agent with those arrays replaced that `write` returned; () replaces none."""
    # The first that is not None wins, so what was replaced comes first.
    return agent if isinstance(replaced, tuple) else eqx.combine(replaced, agent)
