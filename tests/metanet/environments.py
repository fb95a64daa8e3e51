"""A small meta-network and random experience for it, in the shapes that a discovered rule is handed."""

import jax
import jax.numpy as jnp
import numpy as np

from rulax.metanet.sizes import Sizes
from rulax.rules.disco import disco, heads
from rulax.types import Batch, Experience, Level

T, B, A = 6, 3, 4
SMALL = Sizes(
    prediction_size=7,
    bins=11,
    largest_value=5.0,
    hidden=8,
    embedding=5,
    action_channels=(6, 2),
    policy_channels=(4,),
    lifetime_hidden=6,
    lifetime_embedding=3,
)


def random_batch(sizes=SMALL, seed=0, actions=A) -> Batch:
    """On-policy and valid everywhere; stream 0 has an episode that ends at step 2."""
    rng = np.random.default_rng(seed)

    def predictions():
        made = {}
        for name, head in heads(actions, sizes).items():
            shape = (T + 1, B, actions, head.size) if head.per_action else (T + 1, B, head.size)
            made[name] = jnp.asarray(rng.normal(size=shape), jnp.float32)
        return made

    online, slow = predictions(), predictions()
    discount, first = np.ones((T, B), np.float32), np.zeros((T + 1, B), np.int8)
    discount[2, 0], first[3, 0] = 0.0, Level.EPISODE
    experience = Experience(
        observation=(),
        action=jnp.asarray(rng.integers(0, actions, (T, B)), jnp.int32),
        reward=jnp.asarray(rng.normal(size=(T, B)), jnp.float32),
        discount=jnp.asarray(discount),
        first=jnp.asarray(first),
        valid=jnp.ones((T, B), bool),
        behaviour=online["policy"][:-1],
        memory=(),
    )
    return Batch(experience, online, slow)


def cut(batch: Batch, step=3, stream=1) -> Batch:
    """The same, with a dummy step as environments make it: not valid, and leading to another episode's first observation."""
    experience = batch.experience
    valid, first = experience.valid.at[step, stream].set(False), experience.first.at[step + 1, stream].set(Level.EPISODE)
    return batch._replace(experience=experience._replace(valid=valid, first=first))


def targets_of(batch: Batch, sizes=SMALL, seed=0):
    """What the rule says in the middle of a life: with a fresh memory the gate would let nothing through."""
    rule = disco(sizes)
    state = rule.start(jax.random.key(0))
    lifetime = jax.tree.map(lambda x: jax.random.normal(jax.random.key(1), x.shape, x.dtype), state.lifetime)
    return rule.targets(rule.init(jax.random.key(seed)), state._replace(lifetime=lifetime), batch)
