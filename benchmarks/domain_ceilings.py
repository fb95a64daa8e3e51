"""What is possible in the environments of domain randomisation: untrained controllers, and planners that know the constants.

    python benchmarks/domain_ceilings.py cartpole       # one linear controller (seconds)
    python benchmarks/domain_ceilings.py mountain-car   # bang-bang plans with up to three changes of direction (3 CPU minutes)
    python benchmarks/domain_ceilings.py acrobot        # beam search for energy (4 CPU minutes)

Shares of successes in percent, by version (`methods/domain_randomisation.py`): D is the default, R the training ranges, E beyond.
A planner may fail where another would not, so its share is a lower bound of what can be done.
"""

import argparse
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from rulax.methods.experiments.domain_randomisation import ACROBOT, CARTPOLE, MOUNTAIN_CAR, Domain
from rulax.types import Array, PyTree

GAINS = (0.1, 0.3, 10.0, 1.0)  # of CartPole's place, speed, angle and angular speed
BEAM = 500  # states that Acrobot's planner keeps
GRID = (30, 30, 15, 15)  # cells per unit of angles and speeds: of the states in one cell the planner keeps one


def drawn(domain: Domain, version: str, number: int) -> tuple[PyTree, PyTree]:
    """Constants and first states of so many episodes, leaves [number, ...]."""
    environment = domain.version(version)  # type: ignore[arg-type]

    def one(key: Array) -> tuple[PyTree, PyTree]:
        key_task, key_env = jax.random.split(key)
        task = environment.default_task() if version == "D" else environment.sample_task(key_task)
        return task, environment.reset(task, key_env)[0]

    return jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(5), number))


def arrives(domain: Domain, steps: int, action: Callable[[PyTree, Array], Array]) -> Callable[[PyTree, PyTree], Array]:
    """(task, first state) -> whether the episode terminates within so many steps, if `action(state, step)` acts."""

    def episode(task: PyTree, state: PyTree) -> Array:
        def step(carry: tuple[PyTree, Array], number: Array) -> tuple[tuple[PyTree, Array], None]:
            state, over = carry
            state, transition = domain.environment.step(task, state, action(state, number), jax.random.key(0))
            return (state, over | transition.terminated), None

        return jax.lax.scan(step, (state, jnp.bool_(False)), jnp.arange(steps))[0][1]

    return episode


def cartpole(number: int = 1000) -> None:
    """A linear controller with the same gains for all poles."""
    gains = jnp.array(GAINS)
    # Here to terminate is to fail: the pole has fallen or the cart left its track.
    falls = arrives(CARTPOLE, 195, lambda state, step: (jnp.stack(jax.tree.leaves(state)).ravel() @ gains > 0).astype(jnp.int32))
    for version in "DRE":
        print(version, "linear controller", share(~jax.jit(jax.vmap(falls))(*drawn(CARTPOLE, version, number))))


def mountain_car(number: int = 150) -> None:
    """To push the way it moves, always to the right, and the best of all plans with three changes of direction."""
    times = np.arange(0, 111, 3)
    plans = np.stack(np.meshgrid(times, times, times, indexing="ij"), -1).reshape(-1, 3)
    plans = jnp.asarray(plans[(np.diff(plans) >= 0).all(1)])

    def planned(task: PyTree, state: PyTree) -> Array:
        def follow(plan: Array, first: Array) -> Array:
            way = arrives(MOUNTAIN_CAR, 110, lambda _, step: jnp.where((jnp.sum(step >= plan) + first) % 2 == 0, 2, 0))
            return way(task, state)

        return jax.vmap(lambda first: jax.vmap(lambda plan: follow(plan, first))(plans))(jnp.arange(2)).any()

    moving = arrives(MOUNTAIN_CAR, 110, lambda state, step: jnp.where(state[1] < 0, 0, 2))
    right = arrives(MOUNTAIN_CAR, 110, lambda state, step: jnp.int32(2))
    for version in "RE":
        episodes = drawn(MOUNTAIN_CAR, version, number)
        for name, way in (("the way it moves", moving), ("to the right", right)):
            print(version, name, share(jax.jit(jax.vmap(way))(*episodes)))
        # One episode after the other: all plans of one are enough to keep a core busy.
        print(version, "planner", share(jax.jit(lambda *each: jax.lax.map(lambda one: planned(*one), each))(*episodes)))


def acrobot(number: int = 60) -> None:
    """Beam search: of all that can follow, the states with the most energy are kept, some of them with noise on it."""

    def planned(task: PyTree, state: Array) -> Array:
        def step(carry: tuple[Array, Array, Array], number: Array) -> tuple[tuple[Array, Array, Array], None]:
            states, key, arrived = carry
            key, key_noise, key_order = jax.random.split(key, 3)
            branch = jax.vmap(ACROBOT.environment.step, (None, None, 0, None))
            after, transition = jax.vmap(branch, (None, 0, None, None))(task, states, jnp.arange(3), key)
            after = after.reshape(-1, 4)
            arrived = jnp.where((arrived > 100) & transition.terminated.any(), number + 1, arrived)
            scales = jax.random.permutation(key_order, jnp.repeat(jnp.array([0.0, 0.3, 1.0]), BEAM))
            value = jax.vmap(lambda each: energy(task, each))(after) + scales * jax.random.gumbel(key_noise, (3 * BEAM,))
            kept = jax.lax.top_k(jnp.where(repeated(after), -jnp.inf, value), BEAM)[1]
            return (after[kept], key, arrived), None

        start = (jnp.tile(state, (BEAM, 1)), jax.random.key(0), jnp.int32(101))
        return jax.lax.scan(step, start, jnp.arange(100))[0][2]

    for version in "DRE":
        episodes = drawn(ACROBOT, version, number)
        steps = jax.jit(lambda *each: jax.lax.map(lambda one: planned(*one), each))(*episodes)
        print(version, "planner, within 80 steps", share(steps <= 80), "and within 90", share(steps <= 90))


def repeated(states: Array) -> Array:
    """bool [N]: whether an earlier state is in the same cell."""
    cells = jnp.round(states * jnp.array(GRID)).astype(jnp.int32) @ jnp.array([1, 1009, 100_003, 7_000_003], jnp.int32)
    order = jnp.argsort(cells)
    same = jnp.concatenate([jnp.zeros(1, bool), jnp.diff(cells[order]) == 0])
    return jnp.zeros(len(cells), bool).at[order].set(same)


def energy(task: PyTree, state: Array) -> Array:
    """Kinetic and potential energy of the two links, []."""
    first, second, speed_1, speed_2 = state
    coupled = task.mass_2 * task.length_1 * task.centre_2 * jnp.cos(second)
    own = task.mass_2 * task.centre_2**2 + task.inertia
    whole = task.mass_1 * task.centre_1**2 + task.mass_2 * task.length_1**2 + task.inertia + own + 2 * coupled
    kinetic = whole * speed_1**2 / 2 + (own + coupled) * speed_1 * speed_2 + own * speed_2**2 / 2
    height = (task.mass_1 * task.centre_1 + task.mass_2 * task.length_1) * jnp.cos(first)
    return kinetic - task.gravity * (height + task.mass_2 * task.centre_2 * jnp.cos(first + second))


def share(succeeded: Array) -> str:
    """Percent, with the 95 % interval over episodes."""
    rate = float(np.mean(np.asarray(succeeded)))
    return f"{100 * rate:.1f} ± {196 * np.sqrt(rate * (1 - rate) / len(succeeded)):.1f} %"


if __name__ == "__main__":
    ways = {"cartpole": cartpole, "mountain-car": mountain_car, "acrobot": acrobot}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("environment", choices=ways)
    ways[parser.parse_args().environment]()
