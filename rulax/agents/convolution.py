"""Convolutions over images [N, H, W, C], by whichever way is fast for their size. Called by agents/torsos.py.

All ways compute the same (docs/performance.md has their times). On a CPU the compiler's own convolution is the fastest forwards,
but inside of a loop, where PPO makes its passes over a batch, its gradients take five to fifteen times as long as elsewhere: it
no longer brings them into the form that its fast kernels read. So they are written here in forms that need no bringing.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from rulax.agents.layers import initial_weight
from rulax.types import Array

SMALL_IMAGE = 1024  # pixels, up to which nine shifted copies cost less than they save


class Conv(eqx.Module):
    """Convolution over images [N, H, W, C]. With stride 1 and an odd kernel the image keeps its size; with a stride nothing is
    padded."""

    weight: Array  # [kernel, kernel, inputs, outputs]
    bias: Array  # [outputs]
    stride: int = eqx.field(static=True)

    def __init__(self, key: Array, inputs: int, outputs: int, kernel: int = 3, stride: int = 1):
        self.weight = initial_weight(key, (kernel, kernel, inputs, outputs))
        self.bias = jnp.zeros(outputs)
        self.stride = stride

    def __call__(self, x: Array) -> Array:
        kernel, on_cpu = self.weight.shape[0], jax.default_backend() == "cpu"
        if self.stride == 1 and kernel == 3 and x.shape[1] * x.shape[2] <= SMALL_IMAGE:
            convolved = by_patches(x, self.weight)
        elif on_cpu and self.stride == 1 and kernel % 2:
            convolved = by_compiler_forwards(x, self.weight)
        elif on_cpu and self.stride > 1 and kernel % self.stride == 0:
            convolved = by_blocks(x, self.weight, self.stride)
        else:
            convolved = by_compiler(x, self.weight, self.stride)
        return convolved + self.bias


def by_compiler(x: Array, weight: Array, stride: int = 1) -> Array:
    """As the compiler has it."""
    padding, layout = "SAME" if stride == 1 else "VALID", ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, weight, (stride, stride), padding, dimension_numbers=layout)


def by_patches(x: Array, weight: Array) -> Array:
    """One matrix product over all shifted copies side by side; stride 1. For small images on a CPU this takes half the time of the
    compiler's own, and under a vmap over agents it stays a matrix product, where a convolution would become a slow grouped one."""
    return jnp.concatenate(shifts(x, weight.shape[0]), axis=-1) @ weight.reshape(-1, weight.shape[-1])


def by_blocks(x: Array, weight: Array, stride: int) -> Array:
    """Blocks of stride x stride pixels become one pixel with more channels; what is left to do has stride 1 and a few shifts, each
    a matrix product. Slower forwards than the compiler's own, but not in a loop, and there its gradient takes a tenth."""
    kernel, _, inputs, outputs = weight.shape
    rows, columns, places = x.shape[1] // stride, x.shape[2] // stride, kernel // stride
    # Pixels beyond the last whole block are cut off. The kernel consists of whole blocks, so without padding it never reads them.
    blocks = x[:, : rows * stride, : columns * stride].reshape(-1, rows, stride, columns, stride, inputs)
    blocks = jnp.swapaxes(blocks, 2, 3).reshape(-1, rows, columns, stride * stride * inputs)
    # The kernel is cut into blocks in the same way, with the same order of pixels and channels inside each.
    weight = weight.reshape(places, stride, places, stride, inputs, outputs)
    weight = jnp.swapaxes(weight, 1, 2).reshape(places, places, stride * stride * inputs, outputs)
    height, width = rows - places + 1, columns - places + 1
    parts = [blocks[:, i : i + height, j : j + width] @ weight[i, j] for i in range(places) for j in range(places)]
    return sum(parts[1:], parts[0])


@jax.custom_vjp
def by_compiler_forwards(x: Array, weight: Array) -> Array:
    """Stride 1, odd kernel: the compiler's own, with gradients that are as fast inside of a loop as outside."""
    return by_compiler(x, weight)


def _forwards(x: Array, weight: Array) -> tuple[Array, Any]:
    return by_compiler(x, weight), (x, weight)


def _backwards(inputs: Any, slope: Array) -> tuple[Array, Array]:
    """To the image: a convolution again, with the kernel turned round. To the kernel: a matrix product over patches, one image
    after the other, so that its patches stay in the processor's cache."""
    x, weight = inputs
    kernel, _, _, outputs = weight.shape
    turned = jnp.swapaxes(jnp.flip(weight, (0, 1)), 2, 3)

    def add(total: Array, image_and_slope: tuple[Array, Array]) -> tuple[Array, None]:
        image, slope = image_and_slope
        patches = jnp.concatenate(shifts(image[None], kernel), axis=-1)
        return total + patches.reshape(-1, total.shape[0]).T @ slope.reshape(-1, outputs), None

    to_weight = jax.lax.scan(add, jnp.zeros_like(weight).reshape(-1, outputs), (x, slope))[0]
    return by_compiler(slope, turned), to_weight.reshape(weight.shape)


by_compiler_forwards.defvjp(_forwards, _backwards)


def shifts(x: Array, kernel: int) -> list[Array]:
    """What lies under each place of an odd kernel, row by row; outside of the image there is 0."""
    height, width = x.shape[1:3]
    padded = jnp.pad(x, ((0, 0), (kernel // 2,) * 2, (kernel // 2,) * 2, (0, 0)))
    return [padded[:, i : i + height, j : j + width] for i in range(kernel) for j in range(kernel)]
