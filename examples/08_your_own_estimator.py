"""An estimator of your own: the meta-gradient along one random direction, by forward mode (memory does not grow with windows)."""

import sys

import jax

import rulax
from rulax.discovery.discover import Discoverer
from rulax.discovery.estimators import ESTIMATORS, draw_noise, outcome
from rulax.discovery.population import Family
from rulax.discovery.settings import Discovery
from rulax.settings import Learning, Network


def forward(problem, meta_params, member):
    """(g . v) v for a standard normal direction v: on average it is g, the meta-gradient (Baydin et al. 2022).

    Args:
        problem: how meta-parameters enter a life, how it is lived, and what counts as good (`rulax.discovery.estimators.Problem`).
        meta_params: the rule's parameters, a tree of arrays.
        member: one agent before the window.

    Returns:
        The gradient to descend, of the shape of `meta_params`; the agent after the window; metrics, [] each.
    """
    member, key = problem.split_key(member)
    direction = jax.tree.map(lambda noise: noise[0], draw_noise(meta_params, 1, key))
    _, slope, (after, metrics) = jax.jvp(
        lambda params: outcome(problem, params, member), (meta_params,), (direction,), has_aux=True
    )
    return jax.tree.map(lambda v: slope * v, direction), after, metrics


ESTIMATORS["forward"] = forward
meta_steps = int(sys.argv[1]) if len(sys.argv) > 1 else 50

recipe = rulax.rule("disco", prediction_size=8, bins=31, largest_value=15, hidden=16, lifetime_hidden=8)._replace(
    learning=Learning(streams=8, unroll=8, learning_rate=1e-2),
    network=Network(torso="mlp", hidden=(16,), action_model=16, action_hidden=(16,)),
)
settings = Discovery(agents=4, window=3, lifetimes=(50,), estimator="forward", memory="plain", critic_hidden=(16,))
discoverer = Discoverer([Family("catch", rulax.make("catch", rows=5, columns=5), recipe, settings)], meta_steps)

state = discoverer.init(jax.random.key(0))
for step in range(meta_steps):
    state, metrics = discoverer.advance(state)
    if step % max(1, meta_steps // 5) == 0:
        print(f"meta-step {step}: outer loss {metrics['catch']['outer_loss'].mean():+.3f}")
