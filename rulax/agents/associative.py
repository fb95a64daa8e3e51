"""A memory that is a matrix: what followed an observation is found again where a similar observation is met.

    k_t = unit(x_t W_k)                      the address of an observation
    M_t = M_{t-1} + k_{t-1} (x_t W_v)^T      what came after the previous observation is written under its address
    y_t = k_t M_t                            and what was ever written under the present address, or a similar one, is read
    out = relu([squash(y_t), x_t] W_o)

These are fast weights (Schmidhuber 1992; Ba et al. 2016), or attention without a softmax (Katharopoulos et al. 2020), with one
function for the address to write to and to read from. An LSTM or GRU has to learn for every unit in which situation to change it
and in which to show it; here that is so from the first step, and what has to be learned is what makes situations alike.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from rulax.agents.clearing import clear
from rulax.agents.layers import Linear
from rulax.types import Array, Level, starts
from rulax.values.two_hot import sign_log

SMALL = 1e-6  # keeps the length of an address above 0


class AssociativeMemory(NamedTuple):
    """Sums of contents by address, and the address of the last observation."""

    table: Array  # [B, K, V]
    address: Array  # [B, K]


class AssociativeCore(eqx.Module):
    """The equations above, with addresses of K numbers and contents as wide as the output (V = H).

    Everything is cleared at starts of `level` and above; with an address of 0 the first step then writes nothing.
    """

    address: Linear  # [inputs, K]
    content: Linear  # [inputs, H]
    output: Linear  # [H + inputs, H]
    level: Level = eqx.field(static=True)

    def __init__(self, key: Array, inputs: int, size: int, level: Level, rows: int):
        key_address, key_content, key_output = jax.random.split(key, 3)
        self.address = Linear(key_address, inputs, rows)
        self.content = Linear(key_content, inputs, size)
        self.output = Linear(key_output, size + inputs, size)
        self.level = level

    def initial(self, shape: tuple[int, ...]) -> AssociativeMemory:
        rows, size = self.address.bias.size, self.content.bias.size
        dtype = self.content.bias.dtype
        return AssociativeMemory(jnp.zeros((*shape, rows, size), dtype), jnp.zeros((*shape, rows), dtype))

    def step(self, memory: AssociativeMemory, x: Array, first: Array) -> tuple[AssociativeMemory, Array]:
        address, content = self._project(x)
        table, previous = clear(memory, self.level, first)
        table = table + previous[..., :, None] * content[..., None, :]
        # Written before it is read: the present address may be the previous one.
        found = jnp.einsum("bk,bkv->bv", address, table)
        return AssociativeMemory(table, address), self._show(found, x)

    def unroll(self, memory: AssociativeMemory, x: Array, first: Array) -> Array:
        # k_t M_t is a sum over all that was written: (k_t . k_{s-1}) v_s for every s up to t. So all steps are computed at once,
        # and no matrix is kept for the way back (a third of the time of a scan, at 100 steps).
        address, content = self._project(x)
        previous, cleared = self._previous(memory, address, first)
        steps = jnp.arange(len(x))
        # Nothing that was written before a start is found after it.
        visible = (steps[:, None] >= steps)[..., None] & (cleared[:, None] == cleared)  # [T, T, B]
        alike = jnp.where(visible, jnp.einsum("tbk,sbk->tsb", address, previous), 0)
        found = jnp.einsum("tsb,sbv->tbv", alike, content)
        earlier = jnp.einsum("tbk,bkv->tbv", address, memory.table)
        return self._show(found + jnp.where(cleared[..., None] == 0, earlier, 0), x)

    def remember(self, memory: AssociativeMemory, x: Array, first: Array) -> AssociativeMemory:
        address, content = self._project(x)
        previous, cleared = self._previous(memory, address, first)
        since = (cleared == cleared[-1])[..., None]
        table = jnp.einsum("tbk,tbv->bkv", jnp.where(since, previous, 0), content)
        return AssociativeMemory(table + jnp.where(cleared[-1][:, None, None] == 0, memory.table, 0), address[-1])

    def _previous(self, memory: AssociativeMemory, address: Array, first: Array) -> tuple[Array, Array]:
        """The address [T, B, K] that each step writes to, and how often memory was cleared until then, [T, B]."""
        starting = starts(first, self.level)
        previous = jnp.concatenate([memory.address[None], address[:-1]])
        return jnp.where(starting[..., None], 0, previous), jnp.cumsum(starting, 0)

    def _project(self, x: Array) -> tuple[Array, Array]:
        """The address [..., K], of length 1, and the content [..., H] of each input [..., F]."""
        address = self.address(x)
        # Of one length, so that how much is read depends on how alike two addresses are and not on how long.
        address = address * jax.lax.rsqrt(jnp.sum(jnp.square(address), -1, keepdims=True) + SMALL)
        return address, self.content(x)

    def _show(self, found: Array, x: Array) -> Array:
        """The output [..., H] from what was found [..., H] and the input [..., F]."""
        # Sums grow with the number of visits. Their logarithms do so slowly, and a quotient of two becomes a difference.
        return jax.nn.relu(self.output(jnp.concatenate([sign_log(found), x], -1)))
