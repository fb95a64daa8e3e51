"""Action values as one row per state, read off the torso, and the policy that follows them: epsilon-greedy (Mnih et al. 2015).

The ordinary agent's action values come from a model of actions instead (heads.py). With a value of the state beside advantages, of
which the mean is taken off, the network is a dueling one (Wang et al. 2016).
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from rulax.agents.base import Carried
from rulax.agents.heads import in_dimensions
from rulax.agents.layers import MLP, Linear
from rulax.types import Array, Factored, Policy, Predictions
from rulax.values.policies import at_action, epsilon_greedy


class ValueHeads(eqx.Module):
    """Action values, and the policy that follows them, in the place of `heads.Heads`: the same methods, but nothing is sampled."""

    advantage: MLP  # embedding -> A numbers, or D A
    state: MLP | None  # embedding -> 1 number, or D; None without `dueling`
    steps: Carried  # [] int32, steps that the agent has acted for
    dimensions: int = eqx.field(static=True)  # of an action; 0 where it is one choice
    epsilon: tuple[float, float, int] = eqx.field(static=True)  # at first, in the end, and after how many steps that is

    def values(self, embedding: Array) -> Array:
        """Q [..., A], or [..., D, A], from embeddings [..., width]."""
        advantage = in_dimensions(self.advantage(embedding), -1, self.dimensions)
        if self.state is None:
            return advantage
        state = in_dimensions(self.state(embedding), -1, self.dimensions)
        # V and A are not unique in Q = V + A. With the mean taken off, V is the mean of Q.
        return state + advantage - jnp.mean(advantage, -1, keepdims=True)

    def exploration(self) -> Array:
        """Epsilon [] as it is now: it falls linearly, then stays."""
        first, last, steps = self.epsilon
        return first + (last - first) * jnp.minimum(self.steps.value / max(1, steps), 1.0)

    def follow(self, values: Array) -> Policy:
        """The policy of values [..., A] or [..., D, A]."""
        # To learn from the policy's shape would be to learn from which value is the largest, which has no derivative.
        logits = epsilon_greedy(jax.lax.stop_gradient(values), self.exploration())
        return Factored(logits) if self.dimensions else logits

    def policy(self, embedding: Array) -> Policy:
        return self.follow(self.values(embedding))

    def begin(self, embedding: Array) -> Array:
        """All that is predicted: the values."""
        return self.values(embedding)

    def every(self, values: Array) -> Predictions:
        return {"policy": self.follow(values), "value": values[..., None]}

    def taken(self, values: Array, action: Array) -> Predictions:
        return {"policy": self.follow(values), "value": at_action(values, action)[..., None]}

    def first_layers(self) -> list[Linear]:
        """The layers that read the embedding; all of them are linear."""
        return [mlp.layers[0] for mlp in (self.advantage, self.state) if mlp is not None]

    def after(self, layer: Linear) -> ValueHeads:
        """The same heads for inputs that have not passed `layer` yet."""
        return eqx.tree_at(lambda heads: heads.first_layers(), self, [first.after(layer) for first in self.first_layers()])


def zero_values(heads: ValueHeads) -> ValueHeads:
    """The same heads with zeros in their last layers, so that every value is zero at first."""
    last = lambda made: [mlp.layers[-1].weight for mlp in (made.advantage, made.state) if mlp is not None]  # noqa: E731
    return eqx.tree_at(last, heads, replace_fn=jnp.zeros_like)
