"""Environment steps per CPU second through an adapter, beside the bare package's own stepping of as many copies.

    taskset -c 1 python benchmarks/adapters_throughput.py [--seconds 3] [--streams 8] [NAME ...]
    python benchmarks/adapters_throughput.py --processes 0 1 2 [--rounds 3] [--seconds 3] [--streams 8] [NAME ...]

The second form steps the named environments in processes, in rounds, by the wall clock, which other programs slow down; beside it
are the CPU milliseconds that a step of all streams takes in this process, which they slow down little.

CPU seconds count all threads, so another program on the machine changes little. What is not installed is left out. Host adapters
step in Python; jittable ones in one compiled scan, bare without any reset.
"""

import argparse
import time

import numpy as np

from rulax.envs import make
from rulax.envs.catalogue import adapter_families


def bare_atari(streams):
    from ale_py.vector_env import AtariVectorEnv

    vector = AtariVectorEnv("pong", streams, num_threads=1, use_fire_reset=False, reward_clipping=False)
    vector.reset(seed=np.arange(streams))
    return vector.step


def bare_envpool(id):
    def start(streams):
        import pathlib

        import envpool

        place = {"base_path": str(pathlib.Path(envpool.__file__).parent)} if "Sokoban" in id else {}
        pool = envpool.make(id, env_type="gymnasium", num_envs=streams, num_threads=1, seed=1, **place)
        pool.reset()
        return lambda action: pool.step(action.astype(np.int32))

    return start


def copies(make_one):
    """As many single environments, stepped one after the other and reset when they end."""

    def start(streams):
        seeds = np.random.SeedSequence(0).generate_state(
            streams
        )  # the adapter's: some of Crafter's environments take twice as long
        environments = [make_one(int(seed)) for seed in seeds]
        for environment in environments:
            environment.reset()

        def step(actions):
            for environment, action in zip(environments, actions, strict=True):
                outcome = environment.step(int(action))
                if outcome.last() if hasattr(outcome, "last") else any(outcome[2:-1]):
                    environment.reset()

        return step

    return start


def one_crafter(seed):
    import crafter

    return crafter.Env(seed=seed)


def one_gymnasium(id, package, **options):
    def one(seed):
        import importlib

        import gymnasium

        importlib.import_module(package)
        return gymnasium.make(id, disable_env_checker=True, **options)

    return one


def one_catch(seed):
    from bsuite.environments.catch import Catch

    return Catch(seed=seed)


HOSTS = {
    "gymnasium/CartPole-v1": (copies(one_gymnasium("CartPole-v1", "gymnasium")), {}),
    "atari/Pong": (bare_atari, {"threads": 1}),
    "envpool/Pong-v5": (bare_envpool("Pong-v5"), {"num_threads": 1}),
    "envpool/CoinrunEasy-v0": (bare_envpool("CoinrunEasy-v0"), {"num_threads": 1}),
    "envpool/Sokoban-v0": (bare_envpool("Sokoban-v0"), {"num_threads": 1}),
    "crafter/reward": (copies(one_crafter), {}),
    "nethack/NetHackScore-v0": (copies(one_gymnasium("NetHackScore-v0", "nle", observation_keys=("glyphs", "blstats"))), {}),
    "minigrid/MiniGrid-DoorKey-8x8-v0": (copies(one_gymnasium("MiniGrid-DoorKey-8x8-v0", "minigrid")), {}),
    "dm_env/bsuite.environments.catch:Catch": (copies(one_catch), {}),
}
JITTABLE = {
    "gymnax/CartPole-v1": {},
    "jumanji/Snake": {},
    "jumanji/Sokoban": {},
    "xland/MiniGrid-DoorKey-8x8": {},
    "craftax/Craftax-Classic-Symbolic-v1": {"environments": 64},
}


def rate(step, streams, num_actions, seconds):
    """Steps of all streams per CPU second; a tenth of the time to warm up."""
    random = np.random.default_rng(0)
    for limit in (seconds / 10, seconds):
        began, steps = time.process_time(), 0
        while time.process_time() - began < limit:
            step(random.integers(0, num_actions, streams))
            steps += streams
        spent = time.process_time() - began
    return steps / spent


def host_rates(name, streams, seconds):
    bare, options = HOSTS[name]
    environment = make(name, **options)
    opened = environment.open(streams)
    opened.start(0)
    through = rate(opened.step, streams, environment.num_actions, seconds)
    opened.close()
    return through, rate(bare(streams), streams, environment.num_actions, seconds)


def process_rates(name, streams, seconds, numbers, rounds):
    """Steps of all streams per second on the wall, and CPU milliseconds of this process for one step of all: [2, rounds, numbers].

    Each round opens every number of processes once.
    """
    found = []
    for _ in range(rounds):
        found.append([])
        for number in numbers:
            environment = make(name, processes=number)
            opened, random = environment.open(streams), np.random.default_rng(0)
            opened.start(0)
            opened.step(random.integers(0, environment.num_actions, streams))
            began, spent, steps = time.perf_counter(), time.process_time(), 0
            while time.perf_counter() - began < seconds:
                opened.step(random.integers(0, environment.num_actions, streams))
                steps += 1
            found[-1].append((steps * streams / (time.perf_counter() - began), (time.process_time() - spent) / steps * 1000))
            opened.close()
    return np.moveaxis(np.array(found), -1, 0)


def jittable_rates(name, streams, seconds, length=64):
    import jax

    from rulax.envs import streams as streams_of

    environment = make(name, **JITTABLE[name])
    task, opened = jax.jit(environment.default_task)(), streams_of(environment, streams)

    def bare_step(task, state, action, key):
        state, transition = jax.vmap(environment.step, (None, 0, 0, 0))(task, state, action, jax.random.split(key, streams))
        return state, transition.reward

    def many(step):
        def one(state, key):
            action = jax.random.randint(key, (streams,), 0, environment.num_actions)
            state, seen = step(task, state, action, key)
            return state, jax.tree.leaves(seen)[-1]

        return jax.jit(lambda state, key: jax.lax.scan(one, state, jax.random.split(key, length))[0])

    def measure(step, state):
        run = many(step)
        state = jax.block_until_ready(run(state, jax.random.key(0)))  # compiles
        began, calls = time.process_time(), 0
        while time.process_time() - began < seconds:
            state = jax.block_until_ready(run(state, jax.random.key(calls)))
            calls += 1
        return calls * length * streams / (time.process_time() - began)

    state, _ = jax.jit(opened.start)(task, jax.random.key(0))
    return measure(opened.step, state), measure(bare_step, state.stream.env_state)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--processes", type=int, nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.processes:
        for name in arguments.names or ["crafter/reward"]:
            rates, spent = process_rates(name, arguments.streams, arguments.seconds, arguments.processes, arguments.rounds)
            for i, number in enumerate(arguments.processes):
                shown = " ".join(f"{rate:,.0f}" for rate in rates[:, i])
                own = f"{spent[:, i].mean():.2f} CPU ms here"
                print(f"{name}, {arguments.streams} streams, processes={number}: {shown} steps/s; {own}")
        return
    print("| environment | streams | adapter, steps per CPU second | bare package | adapter / bare |\n|---|---|---|---|---|")
    for name in arguments.names or [*HOSTS, *JITTABLE]:
        if not adapter_families()[name.split("/")[0]].installed:
            continue
        host = name in HOSTS
        through, bare = (host_rates if host else jittable_rates)(name, arguments.streams, arguments.seconds)
        print(f"| `{name}` | {arguments.streams} | {through:,.0f} | {bare:,.0f} | {through / bare:.2f} |", flush=True)


if __name__ == "__main__":
    main()
