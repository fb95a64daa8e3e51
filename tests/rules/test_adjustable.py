"""A rule whose constants are arrays computes what it computes with numbers, for each agent its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.rules.actor_critic import actor_critic
from rulax.rules.adjustable import CONSTANTS, OWN, adjustable
from rulax.types import Batch
from tests.methods.test_meta_gradient import ACTIONS, STREAMS, TIME, experience

CHOSEN = {"discount": (0.5, 0.9), "entropy_cost": (0.3, 0.01)}


def arrays(seed=0):
    rng = np.random.default_rng(seed)
    heads = actor_critic().heads(ACTIONS)
    read = {name: jnp.asarray(rng.normal(size=(TIME + 1, STREAMS, head.size)), jnp.float32) for name, head in heads.items()}
    return Batch(experience(1), read, read)


def computed(rule, rule_params, batch):
    targets, _, _ = rule.targets(rule_params, rule.start(jax.random.key(0)), batch)
    taken = {name: value[:-1] for name, value in batch.online.items()}
    return targets, rule.loss(rule_params, taken, targets, batch.experience)[0]


def test_agents_with_constants_of_their_own_learn_as_by_rules_with_those_numbers():
    batch = arrays()
    rule = adjustable(lambda constants: actor_critic(**constants), {"discount": 0.99, "entropy_cost": 0.01})
    begun = rule.init(jax.random.key(0))
    np.testing.assert_allclose(computed(rule, begun, batch)[1], computed(actor_critic(), {}, batch)[1], rtol=1e-6)
    stacked = {CONSTANTS: {name: jnp.array(values) for name, values in CHOSEN.items()}, OWN: {}}
    both = jax.vmap(lambda params: computed(rule, params, batch))(stacked)
    for member in range(2):
        plain = actor_critic(**{name: values[member] for name, values in CHOSEN.items()})
        ours = jax.tree.map(lambda leaf, member=member: leaf[member], both)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6), ours, computed(plain, {}, batch))


def test_a_rule_that_must_know_a_constant_says_so():
    def make(constants):
        plain = actor_critic()

        def loss(rule_params, taken, targets, seen):
            return plain.loss(rule_params, taken, targets, seen) if constants["cost"] > 0 else (targets["advantage"], {})

        return plain._replace(loss=loss)

    rule = adjustable(make, {"cost": 0.1})
    with pytest.raises(ValueError, match="decides by one of cost what it computes"):
        jax.eval_shape(lambda params: computed(rule, params, arrays()), rule.init(jax.random.key(0)))
