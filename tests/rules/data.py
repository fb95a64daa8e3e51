"""Small random experience and predictions, in the shapes that rules are handed."""

import jax
import jax.numpy as jnp
import numpy as np

from rulax.types import Batch, Experience, now
from rulax.values.policies import at_action

T, B, A = 6, 3, 3


def random_batch(rule, seed=0, valid=None, behaviour=None, scale=1.0):
    """A batch for the heads of `rule`, with a termination in stream 0 and, by default, every step valid and on-policy."""
    rng = np.random.default_rng(seed)
    online = {}
    for name, head in rule.heads(A).items():
        shape = (T + 1, B, A, head.size) if head.per_action else (T + 1, B, head.size)
        online[name] = jnp.asarray(scale * rng.normal(size=shape), jnp.float32)
    slow = {name: value + 0.1 for name, value in online.items()}
    discount = np.ones((T, B), np.float32)
    discount[2, 0] = 0.0
    experience = Experience(
        observation=jnp.zeros((T + 1, B, 1)),
        action=jnp.asarray(rng.integers(0, A, (T, B)), jnp.int32),
        reward=jnp.asarray(rng.normal(size=(T, B)), jnp.float32),
        discount=jnp.asarray(discount),
        first=jnp.zeros((T + 1, B), jnp.int8),
        valid=jnp.ones((T, B), bool) if valid is None else jnp.asarray(valid),
        behaviour=now(online["policy"]) if behaviour is None else behaviour,
        memory=(),
    )
    return Batch(experience, online, slow)


def taken_predictions(rule, batch):
    """What the learner hands to `loss`: heads per action at the action that was taken."""
    taken = {}
    for name, head in rule.heads(A).items():
        values = now(batch.online[name])
        if head.per_action:
            values = at_action(jnp.swapaxes(values, -1, -2), batch.experience.action[..., None])
        taken[name] = values
    return taken


def with_cut(step=3, stream=1):
    """Every step valid but one."""
    valid = np.ones((T, B), bool)
    valid[step, stream] = False
    return valid


def init_params(rule):
    return rule.init(jax.random.key(0))


def mean_loss(rule, taken, targets, experience, rule_params=None):
    """As the learner averages: over valid steps."""
    rule_params = init_params(rule) if rule_params is None else rule_params
    loss, _ = rule.loss(rule_params, taken, targets, experience)
    return jnp.sum(loss * experience.valid) / jnp.sum(experience.valid)


def make_targets(rule, batch):
    """Targets, state and metrics of the first update of a life."""
    return rule.targets(init_params(rule), rule.start(jax.random.key(1)), batch)


def gradients(rule, batch, targets):
    """Gradient of the mean loss with respect to the taken predictions."""
    taken = taken_predictions(rule, batch)
    return jax.grad(lambda predictions: mean_loss(rule, predictions, targets, batch.experience))(taken)
