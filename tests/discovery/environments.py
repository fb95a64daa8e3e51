"""Small things to discover with: a tiny meta-network, a rule without stops, recorded windows, and families of environments.

Everything is as small as it can be while no axis has length one: what these tests cost is compiling.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from rulax.agents import make_agent
from rulax.discovery.settings import Discovery
from rulax.discovery.window import Record
from rulax.learning.update import Learner, init_learner_state
from rulax.metanet.sizes import Sizes
from rulax.rules.base import UpdateRule
from rulax.settings import Network
from rulax.types import Experience, Head, now
from rulax.values.policies import kl

TIME, STREAMS, ACTIONS, INPUTS = 3, 2, 3, 4
SIZES = Sizes(
    prediction_size=4,
    bins=5,
    largest_value=4.0,
    hidden=4,
    embedding=3,
    action_channels=(3, 2),
    policy_channels=(3,),
    lifetime_hidden=3,
    lifetime_embedding=2,
)
NETWORK = Network(torso="mlp", hidden=(6,), activation="tanh", action_model=5, action_hidden=())
SETTINGS = Discovery(agents=2, window=2, validation_unroll=4, lifetimes=(4, 8), critic_hidden=(4,))


def smooth_rule() -> UpdateRule:
    """Targets that depend smoothly on the rule's parameters, on the agent and on the rule's memory; nothing is stopped."""

    def init(key):
        return {"mix": 0.5 * jax.random.normal(key, (SIZES.prediction_size, ACTIONS)), "gain": jnp.array([0.7, -0.3, 0.4])}

    def heads(num_actions):
        size = SIZES.prediction_size
        return {"policy": Head(num_actions), "state_prediction": Head(size), "action_prediction": Head(size, per_action=True)}

    def targets(params, memory, batch):
        gain, mean = params["gain"], now(batch.online["action_prediction"]).mean(-2)
        memory = jnp.tanh(gain[0] * memory + jnp.mean(mean))
        policy = jnp.tanh(mean @ params["mix"]) + gain[1] * now(batch.slow["policy"]) + batch.experience.reward[..., None] * memory
        made = {"policy": policy, "state_prediction": gain[2] * mean, "action_prediction": jnp.tanh(policy @ params["mix"].T)}
        return made, memory, {}

    def loss(rule_params, taken, targets, experience):
        return sum(kl(targets[name], taken[name]) for name in targets), {}

    return UpdateRule(heads, init, lambda key: jnp.zeros(()), targets, loss)


def random_experience(seed: int, *lead: int, time: int = TIME) -> Experience:
    """Anything that could have happened, some of it not valid."""
    rng, shape = np.random.default_rng(seed), (*lead, time, STREAMS)
    after = (*lead, time + 1, STREAMS)
    return Experience(
        observation=jnp.asarray(rng.normal(size=(*after, INPUTS))),
        action=jnp.asarray(rng.integers(0, ACTIONS, shape), jnp.int32),
        reward=jnp.asarray(rng.normal(size=shape)),
        discount=jnp.asarray((rng.random(shape) < 0.8).astype(float)),
        first=jnp.zeros(after, jnp.int8),
        valid=jnp.asarray(rng.random(shape) < 0.8),
        behaviour=jnp.asarray(rng.normal(size=(*shape, ACTIONS))),
        memory=(),
    )


def make_learner(rule: UpdateRule, optimiser: optax.GradientTransformation) -> Learner:
    return Learner(rule, optimiser)


def make_record(learner: Learner, updates: int) -> Record:
    """The middle of a life: a rule's memory that is not empty, and a slow copy that is not the agent."""
    spec = jax.ShapeDtypeStruct((INPUTS,), jnp.float32)
    agents = [make_agent(jax.random.key(k), spec, ACTIONS, learner.rule.heads(ACTIONS), NETWORK) for k in (0, 1)]
    state = init_learner_state(learner, agents[0], jax.random.key(2))
    memory = jax.tree.map(lambda x: x + 0.1 * jax.random.normal(jax.random.key(3), x.shape, x.dtype), state.rule_state)
    state = state._replace(slow=agents[1], rule_state=memory)
    return Record(state, random_experience(0, updates), jax.random.split(jax.random.key(4), updates))


def jitted_record(learner: Learner, updates: int) -> Record:
    """`make_record` in one program instead of many small ones."""
    return jax.jit(lambda: make_record(learner, updates))()


def random_like(tree, seed: int):
    """A direction of the length of a tree's leaves."""
    leaves, structure = jax.tree.flatten(tree)
    rng = np.random.default_rng(seed)
    return jax.tree.unflatten(structure, [jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype) for leaf in leaves])


def inner_product(one, other) -> float:
    return float(sum(jnp.vdot(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)))
