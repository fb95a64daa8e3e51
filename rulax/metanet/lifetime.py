"""The rule's memory over an agent's lifetime: an LSTM with one step per update. Called by metanet/network.py."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from rulax.agents.layers import LSTM, Linear, LSTMState
from rulax.metanet.encoder import Encoder
from rulax.metanet.layers import encode_softmax
from rulax.metanet.sizes import Sizes
from rulax.types import Array


class Lifetime(eqx.Module):
    """Parameters of that LSTM and of its inputs. It can learn statistics of a lifetime, such as the scale of rewards."""

    encoder: Encoder
    pool: Linear  # per step, then averaged over the batch
    memory: LSTM

    def __init__(self, key: Array, sizes: Sizes):
        key_encoder, key_pool, key_memory = jax.random.split(key, 3)
        # Beside the encoder's inputs: the summary and, with predictions, the encoded target of y.
        inputs = sizes.inputs + 1 + (1 if sizes.predictions else 0)
        self.encoder = Encoder(key_encoder, sizes)
        self.pool = Linear(key_pool, inputs, sizes.lifetime_embedding)
        self.memory = LSTM(key_memory, sizes.lifetime_embedding, sizes.lifetime_hidden)

    def remember(self, state: LSTMState, inputs: Array, summary: Array, target: Array | None, known: Array) -> LSTMState:
        """The memory after one update.

        Args:
            state: the memory before it.
            inputs: [T, B, I] from this LSTM's own encoder.
            summary: [T, B, 1] from the features behind the gate.
            target: [T, B, N] target logits of y, or None for a rule without predictions.
            known: [T, B] steps that count in the mean over the batch.
        """
        parts = [inputs, summary]
        if target is not None and self.encoder.state_prediction is not None:
            parts.append(encode_softmax(target, [self.encoder.state_prediction])[0][..., None])
        # The pooling layer is linear, so it may follow the mean over the batch: one product per update, not one per step.
        number = jnp.maximum(jnp.sum(known), 1).astype(inputs.dtype)
        means = [jnp.sum(jnp.where(known[..., None], part, 0), (0, 1)) / number for part in parts]
        return self.memory.step(state, self.memory.project(self.pool(jnp.concatenate(means))))


def start_lifetime(sizes: Sizes) -> LSTMState | tuple[()]:
    """The memory before the first update: zeros, or () for a rule without one."""
    zeros = jnp.zeros(sizes.lifetime_hidden)
    # Two buffers, because a state that is donated to a compiled program may not hold the same one twice.
    return LSTMState(zeros, jnp.copy(zeros)) if sizes.lifetime else ()
