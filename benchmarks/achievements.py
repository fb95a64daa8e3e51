"""Which achievements of Craftax-Classic (or Craftax) a trained agent unlocks, beside random actions.

    rulax train craftax/Craftax-Classic-Symbolic-v1 --rule ppo --steps 1M --out runs/craftax
    python benchmarks/achievements.py runs/craftax [--episodes 256] [--steps 2000] [--seed 1]

Every stream plays one episode with actions drawn from the policy of the first seed, on maps that the agent has never
seen: the pool is made with another seed than the one of training. An episode that is still going on after `--steps` counts as far
as it got.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

import rulax
from rulax.agents.distributions import sample_choice
from rulax.envs import make


def game_state(state):
    """The game's own state, whatever is wrapped around it."""
    while not hasattr(state, "achievements"):
        state = next(part for part in state if hasattr(part, "achievements") or isinstance(part, tuple))
    return state


def play(environment, episodes, steps, key, agent=None):
    """Whether each achievement was unlocked [episodes, achievements], and how long each episode was."""
    key_task, key_reset, key_play = jax.random.split(key, 3)
    task = environment.sample_task(key_task)
    states, observations = jax.vmap(environment.reset, (None, 0))(task, jax.random.split(key_reset, episodes))
    memory = agent.initial_memory(episodes) if agent is not None else ()

    def one(carry, key):
        states, observations, first, memory, alive, unlocked, length = carry
        key_act, key_step = jax.random.split(key)
        if agent is None:
            actions = jax.random.randint(key_act, (episodes,), 0, environment.num_actions)
        else:
            logits, memory = agent.act(observations, first, memory)
            actions = sample_choice(key_act, logits)
        step = jax.vmap(environment.step, (None, 0, 0, 0))
        states, transition = step(task, states, actions, jax.random.split(key_step, episodes))
        unlocked = unlocked | (game_state(states).achievements & alive[:, None])
        length = length + alive
        alive = alive & ~transition.terminated & ~transition.truncated
        return (states, transition.observation, jnp.zeros_like(first), memory, alive, unlocked, length), None

    everyone = jnp.ones(episodes, bool)
    unlocked = jnp.zeros_like(game_state(states).achievements, bool)
    carry = (states, observations, everyone, memory, everyone, unlocked, jnp.zeros(episodes, jnp.int32))
    carry, _ = jax.jit(lambda carry, keys: jax.lax.scan(one, carry, keys))(carry, jax.random.split(key_play, steps))
    return np.asarray(carry[5]), np.asarray(carry[6])


def names_of(number):
    """The achievements by name."""
    if number == 22:
        from craftax.craftax_classic.constants import Achievement
    else:
        from craftax.craftax.constants import Achievement
    return [each.name.lower() for each in sorted(Achievement, key=lambda each: each.value)]


def main():
    """A table, most frequent first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="folder of a run of `rulax train craftax/...`")
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    run = rulax.load(given.run)
    environment = make(run.config.env, **{**run.config.env_options, "environments": 256})
    players = {"trained": run.agent.params, "random": None}
    found = {name: play(environment, given.episodes, given.steps, jax.random.key(given.seed), who) for name, who in players.items()}
    names = names_of(found["trained"][0].shape[1])
    shares = {name: unlocked.mean(0) for name, (unlocked, _) in found.items()}
    print(f"{given.episodes} episodes each; share in which it was unlocked")
    print(f"{'achievement':24}{'trained':>10}{'random':>10}")
    for number in np.argsort(-shares["trained"], kind="stable"):
        print(f"{names[number]:24}{shares['trained'][number]:10.1%}{shares['random'][number]:10.1%}")
    for name, (unlocked, length) in found.items():
        print(f"{name}: {unlocked.sum(1).mean():.2f} achievements and {length.mean():.0f} steps per episode")


if __name__ == "__main__":
    main()
