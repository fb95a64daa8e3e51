"""Every way of convolving is scipy's correlation, and has the derivatives of the compiler's own, of second order too."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.signal import correlate

from rulax.agents.convolution import Conv, by_compiler

WAYS = [(9, 3, 1), (40, 3, 1), (40, 5, 1), (40, 8, 4), (21, 4, 2), (23, 6, 3), (11, 5, 2)]  # size, kernel, stride


def correlated(image, conv, padded):
    """The convolution of deep learning, one channel at a time, by scipy."""
    pad = conv.weight.shape[0] // 2
    image = np.pad(image, ((pad, pad), (pad, pad), (0, 0))) if padded else image
    outputs = [correlate(image, np.asarray(conv.weight)[..., o], mode="valid")[:, :, 0] for o in range(conv.weight.shape[-1])]
    return np.stack(outputs, -1)[:: conv.stride, :: conv.stride] + np.asarray(conv.bias)


@pytest.mark.parametrize(("size", "kernel", "stride"), WAYS)
@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_convolutions_are_those_of_scipy_by_every_way(size, kernel, stride, backend, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)  # which only chooses the way
    conv = Conv(jax.random.key(0), 3, 5, kernel, stride)
    conv = eqx.tree_at(lambda c: c.bias, conv, jnp.arange(5.0))
    image = np.random.default_rng(0).normal(size=(2, size, size, 3)).astype(np.float32)
    found = np.asarray(conv(jnp.asarray(image)))
    for each in range(2):
        np.testing.assert_allclose(found[each], correlated(image[each], conv, stride == 1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("size", "kernel", "stride"), WAYS)
def test_derivatives_are_those_of_the_compilers_convolution(size, kernel, stride):
    """Of first order, and of second order as meta-gradients take it: backwards over backwards, and forwards over backwards."""
    with jax.enable_x64(True):
        draw = np.random.default_rng(1)
        conv = Conv(jax.random.key(0), 2, 3, kernel, stride)
        weight, turn = (jnp.asarray(draw.normal(size=conv.weight.shape)) for _ in range(2))
        image, push = (jnp.asarray(draw.normal(size=(2, size, size, 2))) for _ in range(2))

        def derivatives(convolve):
            def loss(weight, image):
                return jnp.sum(jnp.tanh(convolve(image, weight)))

            gradient = jax.grad(loss, (0, 1))

            def along(weight, image):
                return sum(jnp.sum(g * v) for g, v in zip(gradient(weight, image), (turn, push), strict=True))

            return gradient(weight, image), jax.grad(along, (0, 1))(weight, image), jax.jvp(gradient, (weight, image), (turn, push))

        found = jax.jit(lambda: derivatives(lambda x, w: eqx.tree_at(lambda c: c.weight, conv, w)(x)))()
        expected = jax.jit(lambda: derivatives(lambda x, w: by_compiler(x, w, stride)))()
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), found, expected)
