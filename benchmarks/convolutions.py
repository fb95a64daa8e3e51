"""How to write a convolution for a CPU: CPU seconds of a torso on a batch of images, its gradient, and its gradient in a scan.

PPO makes its passes over a batch inside of a scan, where the compiler's own convolution has another gradient than outside. The
layers are those of `--torso strided` and of the first section of `--torso impala`, on 84 x 84 images of 4 channels:

    compiler  lax.conv_general_dilated
    products  blocks of stride x stride pixels as channels, then a matrix product for every place of the kernel, summed up
    ours      rulax.agents.convolution.Conv, which chooses by size and stride

    taskset -c 0 python benchmarks/convolutions.py [--json] [--images 256] [--parts 4] [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from rulax.agents.convolution import Conv, by_blocks, by_compiler
from rulax.agents.torsos import STRIDES
from rulax.types import Array

SIDE, DEPTH = 84, 4
Layer = Callable[[Conv, Array], Array]


def summed(conv: Conv, x: Array) -> Array:
    margin = conv.weight.shape[0] // 2 if conv.stride == 1 else 0
    padded = jnp.pad(x, ((0, 0), (margin,) * 2, (margin,) * 2, (0, 0)))
    return by_blocks(padded, conv.weight, conv.stride) + conv.bias


WAYS: dict[str, Layer] = {
    "compiler": lambda conv, x: by_compiler(x, conv.weight, conv.stride) + conv.bias,
    "products": summed,
    "ours": lambda conv, x: conv(x),
}


def strided(layer: Layer, convs: list[Conv], x: Array) -> Array:
    for conv in convs:
        x = jax.nn.relu(layer(conv, x))
    return x


def section(layer: Layer, convs: list[Conv], x: Array) -> Array:
    first, *blocks = convs
    x = jax.lax.reduce_window(layer(first, x), -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    for one, two in zip(blocks[::2], blocks[1::2], strict=True):
        x = x + layer(two, jax.nn.relu(layer(one, jax.nn.relu(x))))
    return x


def torsos(key: Array) -> dict[str, tuple[Any, list[Conv]]]:
    """Each torso and its layers."""
    keys = iter(jax.random.split(key, 8))
    sizes = zip((DEPTH, 16, 32), (16, 32, 32), STRIDES, strict=True)
    return {
        "strided": (strided, [Conv(next(keys), i, o, *kernel_and_stride) for i, o, kernel_and_stride in sizes]),
        "impala, first section": (section, [Conv(next(keys), inputs, 16) for inputs in (DEPTH, 16, 16, 16, 16)]),
    }


def programs(torso: Any, layer: Layer, parts: int) -> dict[str, Any]:
    """What is timed: compiled functions of the layers and the images."""

    def loss(convs: list[Conv], x: Array) -> Array:
        return jnp.mean(jnp.square(torso(layer, convs, x)))

    def in_scan(convs: list[Conv], x: Array) -> Any:
        def step(convs: list[Conv], part: Array) -> tuple[list[Conv], None]:
            return jax.tree.map(lambda w, g: w - 1e-3 * g, convs, jax.grad(loss)(convs, part)), None

        return jax.lax.scan(step, convs, x.reshape(parts, -1, *x.shape[1:]))[0]

    return {"forward": jax.jit(loss), "gradient": jax.jit(jax.grad(loss)), "gradient in a scan": jax.jit(in_scan)}


def seconds(rounds: int, program: Any, *inputs: Any) -> float:
    """The median over rounds, after one that compiles."""
    jax.block_until_ready(program(*inputs))
    taken = []
    for _ in range(rounds):
        start = time.process_time()
        jax.block_until_ready(program(*inputs))
        taken.append(time.process_time() - start)
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--parts", type=int, default=4, help="steps of the scan, into which the images are divided")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    images = jax.random.uniform(jax.random.key(0), (args.images, SIDE, SIDE, DEPTH))
    rows = []
    for name, (torso, convs) in torsos(jax.random.key(1)).items():
        for way, layer in WAYS.items():
            timed = programs(torso, layer, args.parts)
            row = {what: seconds(args.rounds, program, convs, images) for what, program in timed.items()}
            rows.append({"torso": name, "way": way, **row})
            if not args.json:
                print(f"{name:24}{way:12}" + "".join(f"{what} {value:.3f} s   " for what, value in row.items()), flush=True)
    if args.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
