import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.metanet.two_hot import leaning_two_hot, leaning_value_loss
from rulax.values.two_hot import Bins, two_hot

rlax = pytest.importorskip("rlax")


@pytest.mark.parametrize("bins", [Bins(601, 300.0), Bins(11, 2.0), Bins(10, 3.0)])
def test_it_is_the_references_code(bins):
    with jax.enable_x64(True):
        x = jnp.asarray(np.random.default_rng(0).normal(size=200) * bins.largest)
        expected = rlax.transform_to_2hot(x, -bins.largest, bins.largest, bins.number)
        np.testing.assert_allclose(leaning_two_hot(x, bins), expected, atol=1e-12)
        np.testing.assert_allclose(leaning_two_hot(x, bins), two_hot(x, bins), atol=4e-5)


def test_a_value_on_a_bin_is_one_hot():
    np.testing.assert_array_equal(
        leaning_two_hot(jnp.array([-300.0, 0.0, 7.0, 400.0]), Bins(601, 300.0)).argmax(-1), [0, 300, 307, 600]
    )
    np.testing.assert_array_equal(leaning_two_hot(jnp.array([-300.0, 0.0, 7.0, 400.0]), Bins(601, 300.0)).max(-1), 1)


def test_the_loss_is_a_cross_entropy():
    logits, values = jax.random.normal(jax.random.key(0), (5, 11)), jnp.linspace(-30.0, 30.0, 5)
    bins = Bins(11, 5.0)
    code = leaning_two_hot(rlax.signed_hyperbolic(values), bins)
    expected = -jnp.sum(code * jax.nn.log_softmax(logits), -1)
    np.testing.assert_allclose(leaning_value_loss(logits, values, bins), expected, rtol=1e-5)
