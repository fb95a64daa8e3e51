"""Speed of `rulax train --rule ppo` against a plain single-file PPO in the style of PureJaxRL, on gymnax's CartPole.

Both train the same sizes (64 streams, 32 steps, 4 epochs x 4 minibatches, tanh 64-64) in one process, in turns, and are judged
by environment steps per CPU second. The single file knows one algorithm, one network and one environment, keeps no run folder,
and shuffles single steps instead of streams: it is what a library has to be measured against.

    python benchmarks/ppo_against_single_file.py [--json] [--rounds 5] [--iterations 100]
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import optax

STREAMS, UNROLL, EPOCHS, MINIBATCHES, HIDDEN = 64, 32, 4, 4, 64
DISCOUNT, TRACE, CLIP, ENTROPY, VALUE = 0.99, 0.95, 0.2, 0.01, 0.5


def init_network(key, inputs, actions, separate):
    def layer(key, i, o, scale):
        return {"w": jax.nn.initializers.orthogonal(scale)(key, (i, o)), "b": jnp.zeros(o)}

    keys = jax.random.split(key, 6)
    body = [layer(keys[0], inputs, HIDDEN, 2**0.5), layer(keys[1], HIDDEN, HIDDEN, 2**0.5)]
    critic = [layer(keys[2], inputs, HIDDEN, 2**0.5), layer(keys[3], HIDDEN, HIDDEN, 2**0.5)] if separate else []
    return {"body": body, "critic": critic, "pi": layer(keys[4], HIDDEN, actions, 0.01), "v": layer(keys[5], HIDDEN, 1, 1.0)}


def apply_network(params, x):
    def run(layers, h):
        for layer in layers:
            h = jnp.tanh(h @ layer["w"] + layer["b"])
        return h

    actor = run(params["body"], x)
    critic = run(params["critic"], x) if params["critic"] else actor
    logits = actor @ params["pi"]["w"] + params["pi"]["b"]
    return logits, (critic @ params["v"]["w"] + params["v"]["b"])[..., 0]


def make_single_file(separate: bool):
    """`init(key)` and `train(state, iterations)` of a PPO that fits on one screen."""
    env, env_params = gymnax.make("CartPole-v1")
    reset = jax.vmap(env.reset, in_axes=(0, None))
    env_step = jax.vmap(env.step, in_axes=(0, 0, 0, None))
    optimiser = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-3, eps=1e-5))

    def init(key):
        key, key_net, key_env = jax.random.split(key, 3)
        observation, env_state = reset(jax.random.split(key_env, STREAMS), env_params)
        params = init_network(key_net, observation.shape[-1], env.num_actions, separate)
        return params, optimiser.init(params), env_state, observation, key

    def act(carry, _):
        params, env_state, observation, key = carry
        key, key_action, key_env = jax.random.split(key, 3)
        logits, value = apply_network(params, observation)
        action = jax.random.categorical(key_action, logits)
        log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], 1)[:, 0]
        following, env_state, reward, *ends, _ = env_step(jax.random.split(key_env, STREAMS), env_state, action, env_params)
        done = ends[0] if len(ends) == 1 else ends[0] | ends[1]
        return (params, env_state, following, key), (observation, action, log_prob, value, reward, done)

    def loss_of(params, observation, action, log_prob, advantage, target):
        logits, value = apply_network(params, observation)
        log_pi = jax.nn.log_softmax(logits)
        ratio = jnp.exp(jnp.take_along_axis(log_pi, action[:, None], 1)[:, 0] - log_prob)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        policy = -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage).mean()
        entropy = -jnp.sum(jnp.exp(log_pi) * log_pi, -1).mean()
        return policy + VALUE * 0.5 * jnp.square(value - target).mean() - ENTROPY * entropy

    def minibatch(carry, data):
        params, opt_state = carry
        updates, opt_state = optimiser.update(jax.grad(loss_of)(params, *data), opt_state)
        return (optax.apply_updates(params, updates), opt_state), None

    def epoch(carry, key, data):
        order = jax.random.permutation(key, STREAMS * UNROLL)
        parts = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[order].reshape(MINIBATCHES, -1, *x.shape[2:]), data)
        return jax.lax.scan(minibatch, carry, parts)

    def iteration(state, _):
        params, opt_state, env_state, observation, key = state
        carry, steps = jax.lax.scan(act, (params, env_state, observation, key), None, UNROLL)
        _, env_state, observation, key = carry
        seen, action, log_prob, value, reward, done = steps
        _, last = apply_network(params, observation)

        def gae(carry, step):
            later, advantage = carry
            value, reward, done = step
            error = reward + DISCOUNT * later * (1 - done) - value
            advantage = error + DISCOUNT * TRACE * (1 - done) * advantage
            return (value, advantage), advantage

        _, advantage = jax.lax.scan(gae, (last, jnp.zeros_like(last)), (value, reward, done), reverse=True)
        data = (seen, action, log_prob, advantage, advantage + value)
        key, key_epochs = jax.random.split(key)
        keys = jax.random.split(key_epochs, EPOCHS)
        (params, opt_state), _ = jax.lax.scan(lambda carry, key: epoch(carry, key, data), (params, opt_state), keys)
        return (params, opt_state, env_state, observation, key), done.sum()

    @partial(jax.jit, static_argnums=1, donate_argnums=0)
    def train(state, iterations):
        return jax.lax.scan(iteration, state, None, iterations)

    return init, train


class SingleFile:
    """The single-file PPO behind the two calls that the benchmark makes."""

    def __init__(self, separate, iterations):
        init, self.train = make_single_file(separate)
        self.state, self.iterations = init(jax.random.key(0)), iterations

    def run(self):
        self.state, ended = self.train(self.state, self.iterations)
        jax.block_until_ready(ended)


class Library:
    """The same through rulax: the trainer that the command line drives."""

    def __init__(self, iterations):
        import dataclasses

        from rulax.envs.registry import make
        from rulax.learning.train import TrainerConfig, make_trainer
        from rulax.rules.base import Recipe
        from rulax.rules.registry import make_rule

        recipe = make_rule("ppo")
        sizes = {"streams": STREAMS, "unroll": UNROLL, "epochs": EPOCHS, "minibatches": MINIBATCHES, "batch": 0}
        network = dataclasses.replace(recipe.network, hidden=(HIDDEN, HIDDEN))
        recipe = Recipe(recipe.rule, dataclasses.replace(recipe.learning, **sizes), network)
        total = 10**9
        self.trainer = make_trainer(make("gymnax/CartPole-v1"), recipe, TrainerConfig(total_steps=total))
        self.state, self.iterations = self.trainer.init(jax.random.key(0)), iterations

    def run(self):
        done = 0
        while done < self.iterations:
            self.trainer._chunk_size = min(self.iterations - done, 512)
            self.state, metrics = self.trainer.advance(self.state)
            done += len(metrics["loss"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=100)
    options = parser.parse_args()
    programs = {
        "single file, separate networks": SingleFile(True, options.iterations),
        "single file, shared network": SingleFile(False, options.iterations),
        "rulax": Library(options.iterations),
    }
    speeds = {name: [] for name in programs}
    for program in programs.values():
        program.run()  # compiles
    for _ in range(options.rounds):
        for name, program in programs.items():
            began = time.process_time()
            program.run()
            speeds[name].append(options.iterations * STREAMS * UNROLL / (time.process_time() - began))
    result = {name: float(np.median(values)) for name, values in speeds.items()}
    ratios = {f"rulax / {name}": result["rulax"] / result[name] for name in result if name != "rulax"}
    if options.json:
        print(json.dumps({"env_steps_per_cpu_s": result, "ratios": ratios, "rounds": speeds}))
        return
    for name, value in result.items():
        print(f"{name:32s} {value:12,.0f} env steps per CPU second")
    for name, value in ratios.items():
        print(f"{name:42s} {value:6.2f}")


if __name__ == "__main__":
    main()
