import jax
import jax.numpy as jnp
import numpy as np

from rulax.agents.layers import MLP
from rulax.metanet.layers import ActionSet, ActionSets, encode_softmax


def test_an_action_set_is_a_layer_over_each_action_beside_the_mean():
    layer = ActionSet(jax.random.key(0), 3, 5)
    x = jax.random.normal(jax.random.key(1), (2, 4, 3))
    beside = jnp.concatenate([x, jnp.broadcast_to(x.mean(-2, keepdims=True), x.shape)], -1)
    expected = jax.nn.relu(beside @ jnp.concatenate([layer.weight_own, layer.weight_mean]) + layer.bias)
    np.testing.assert_allclose(layer(x), expected, rtol=1e-5, atol=1e-6)


def test_features_of_the_state_may_be_given_once():
    layer = ActionSets(jax.random.key(0), 5, (6, 2))
    state, actions = jax.random.normal(jax.random.key(1), (2, 3)), jax.random.normal(jax.random.key(2), (2, 4, 2))
    repeated = jnp.concatenate([jnp.broadcast_to(state[:, None], (2, 4, 3)), actions], -1)
    np.testing.assert_allclose(layer(actions, state), layer(repeated), rtol=1e-5, atol=1e-6)


def test_the_order_of_actions_does_not_matter():
    layer = ActionSets(jax.random.key(0), 3, (6, 2))
    x, order = jax.random.normal(jax.random.key(1), (5, 4, 3)), jnp.array([2, 0, 3, 1])
    np.testing.assert_allclose(layer(x)[:, order], layer(x[:, order]), rtol=1e-5, atol=1e-6)


def test_encoders_share_one_softmax():
    encoders = [MLP(jax.random.key(seed), (7, width, 1)) for seed, width in enumerate((5, 3))]
    logits = 20 * jax.random.normal(jax.random.key(2), (4, 7))
    for encoder, found in zip(encoders, encode_softmax(logits, encoders), strict=True):
        np.testing.assert_allclose(found, encoder(jax.nn.softmax(logits))[..., 0], rtol=1e-4, atol=1e-6)
    slope = jax.grad(lambda x: encode_softmax(x, encoders)[0].sum())(logits)
    expected = jax.grad(lambda x: encoders[0](jax.nn.softmax(x)).sum())(logits)
    np.testing.assert_allclose(slope, expected, rtol=1e-4, atol=1e-6)
