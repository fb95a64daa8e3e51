"""What the loop around a host environment costs, beyond the environment itself and the network itself.

Four things are timed in turns, per iteration of `unroll` steps in every stream and one update, in medians over rounds:

    bare      the vector environment alone, with random actions: Gymnasium's own for Gymnasium's environments, without our adapter
    network   the decisions alone, from observations in numpy to actions in numpy, and one update of a batch, waited for
    by hand   the shortest loop there is: decide, step the bare environment, one update; nothing is kept
    loop      `HostTrainer.advance`: both, and bookkeeping, replay, sampling, episode statistics, metrics

`ratio` is loop / (bare + network). Each of the two is faster alone, with the caches for itself, than in any loop with the other:
what that takes shows in `by hand` / (bare + network). With --overlap on, the ratio of wall clocks may fall below 1.

`guards` is loop / the same loop without its look at the clock and at what the environment shows (limit.py, checking.py).

    python benchmarks/host_loop.py [--json] [--environments CartPole-v1 images] [--overlap off on] [--rounds 5] [--pause 0]
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from rulax.envs.adapters.checking import Checker
from rulax.envs.base import Episode, HostEnvironment, HostStreams, Timestep
from rulax.envs.registry import make
from rulax.learning import host_replay
from rulax.learning.train import TrainerConfig, make_trainer
from rulax.rules.registry import make_rule

SIDE, FRAMES, LENGTH = 84, 4, 100


class Images(HostEnvironment):
    """Stacks of four frames of noise, 84 x 84; every step takes `pause` seconds in which nobody needs the processor."""

    num_actions, frames = 6, FRAMES
    observation = jax.ShapeDtypeStruct((SIDE, SIDE, FRAMES), np.uint8)

    def __init__(self, pause: float = 0.0):
        self.pause = pause

    def open(self, num_streams: int) -> HostStreams:
        return ImageStreams(num_streams, self.pause)


class ImageStreams(HostStreams):
    """All streams end together, after LENGTH steps."""

    def __init__(self, number: int, pause: float):
        self.number, self.pause = number, pause
        self.noise = np.random.default_rng(0).integers(0, 256, (97, number, SIDE, SIDE), np.uint8)

    def start(self, seed: int) -> Timestep:
        self.count, self.stack = 0, np.zeros((self.number, SIDE, SIDE, FRAMES), np.uint8)
        return self.show(0)

    def step(self, action: np.ndarray) -> Timestep:
        if self.pause:
            time.sleep(self.pause)
        self.count += 1
        if self.count % LENGTH == 0:
            self.stack = np.zeros_like(self.stack)
        return self.show(self.count)

    def show(self, count: int) -> Timestep:
        stack = np.empty_like(self.stack)
        stack[..., :-1], stack[..., -1] = self.stack[..., 1:], self.noise[count % len(self.noise)]
        self.stack = stack
        zeros, ended = np.zeros(self.number, np.float32), np.full(self.number, count % LENGTH == 0 and count > 0)
        statistics = Episode(ended, zeros, np.full(self.number, LENGTH, np.int32))
        return Timestep(stack, ended | (count == 0), zeros, 1.0 - ended.astype(np.float32), zeros == 0, statistics)

    def close(self) -> None:
        """Nothing to release."""


def recipe_for(images: bool) -> Any:
    """A rule that replays half of its batch: small layers for vectors, a small convolution for images."""
    made = make_rule("actor_critic")
    sizes = {"streams": 8, "unroll": 10, "capacity": 128} if images else {"streams": 64, "unroll": 16, "capacity": 1024}
    learning = dataclasses.replace(made.learning, replay=0.5, **sizes)
    return made._replace(learning=learning, network=dataclasses.replace(made.network, hidden=(64, 64), channels=(8,)))


def clock(work: Any, times: int) -> tuple[float, float]:
    """Wall and CPU seconds per time."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(times):
        work()
    return (time.perf_counter() - wall) / times, (time.process_time() - cpu) / times


def bare_step(name: str, environment: Any, streams: int) -> Any:
    """A function from actions to observations: the vector environment alone."""
    if name == "images" or "/" in name:
        opened = environment.open(streams)
        opened.start(0)
        return lambda action: opened.step(action).observation
    import gymnasium

    vector = gymnasium.make_vec(name, num_envs=streams, vectorization_mode="sync")
    vector.reset(seed=0)
    return lambda action: vector.step(action)[0]


def parts(trainer: Any, state: Any, step: Any) -> tuple[Any, Any, Any]:
    """One iteration of the environment alone, of the network alone, and of both by hand; the update is always the same."""
    life, learning = state.life, trainer.recipe.learning
    acted = trainer._act(life.learner_state.params, life.actor, life.key)
    fresh = host_replay.to_store(acted.fresh, trainer.environment.observation, trainer.environment.frames)
    drawn = host_replay.mix(None, fresh, learning.batch or learning.streams, 0.0, acted.keys.learn)
    leaves, actor, keys = jax.tree.leaves(life.learner_state.params), acted.actor, acted.keys
    shown, first = (trainer.acting.join(np.asarray(x)) for x in (actor.observation, actor.first))
    actions = np.random.default_rng(0).integers(0, trainer.environment.num_actions, (learning.unroll, learning.streams))

    def decide(observation: Any, number: int) -> np.ndarray:
        return np.asarray(trainer.acting.decide(leaves, observation, first, actor.memory, keys.act, np.int32(number))[0])

    def update() -> None:
        jax.block_until_ready(trainer._update(trainer.rule_params, trainer.numbers, life.learner_state, drawn, keys.learn))

    def bare() -> None:
        for action in actions:
            step(action)

    def network() -> None:
        for number in range(learning.unroll):
            decide(shown, number)
        update()

    def by_hand() -> None:
        observation = shown
        for number in range(learning.unroll):
            observation = step(decide(observation, number))
        update()

    return bare, network, by_hand


@contextlib.contextmanager
def unguarded(streams: Any) -> Iterator[None]:
    """Streams that neither limit the time of a step nor look at what it shows."""
    streams._call, streams.check = lambda guard, name, function, *arguments: function(*arguments), lambda *_: None
    try:
        yield
    finally:
        del streams._call
        streams.check = Checker(streams.environment, streams.num_streams)


def loop_time(trainer: Any, loop: Any, bare: bool) -> np.ndarray:
    """Wall and CPU seconds of a loop, perhaps unguarded."""
    with unguarded(trainer.streams) if bare else contextlib.nullcontext():
        return np.array(clock(loop, 1))


def measure(name: str, overlap: str, rounds: int, iterations: int, pause: float) -> dict[str, Any]:
    """Medians over rounds."""
    environment = Images(pause) if name == "images" else make(name)
    recipe = recipe_for(len(environment.observation.shape) == 3)
    learning = recipe.learning
    total = learning.streams * learning.unroll * 10**6
    trainer = make_trainer(environment, recipe, TrainerConfig(total_steps=total, overlap=overlap))  # type: ignore[arg-type]
    state, _ = trainer.advance(trainer.init(jax.random.key(0)), 8)

    def loop() -> None:
        nonlocal state
        made = 0
        while made < iterations:
            state, metrics = trainer.advance(state, iterations - made)
            made += len(metrics["loss"])

    step = bare_step(name, environment, learning.streams)
    works = parts(trainer, trainer.resume(state), step)
    state = trainer.resume(state)
    for work in (*works, loop):
        clock(work, 1)
    rows = []  # [round, part, wall or CPU]
    guards = []
    for number in range(rounds):
        pair = [loop_time(trainer, loop, bare) for bare in ((False, True) if number % 2 else (True, False))]
        guarded, without = pair if number % 2 else pair[::-1]
        guards.append(guarded / without)
        row = [guarded / iterations]
        if trainer._learning is not None:
            trainer._learning[0].result()  # what is under way would be counted as somebody else's
        rows.append([*(np.array(clock(work, iterations)) for work in works), *row])
    trainer.close()
    times = np.array(rows)
    ratios = np.median(times[:, 2:] / (times[:, :1] + times[:, 1:2]), 0)  # by hand and loop
    result: dict[str, Any] = {"environment": name, "overlap": overlap, "pause": pause}
    for number, part in enumerate(("bare", "network", "by_hand", "loop")):
        for kind, unit in enumerate(("wall", "cpu")):
            result[f"{part}_{unit}_ms"] = round(1e3 * float(np.median(times[:, number, kind])), 2)
    for kind, unit in enumerate(("wall", "cpu")):
        result[f"guards_{unit}_ratio"] = round(float(np.median(guards, 0)[kind]), 3)
    for number, part in enumerate(("by_hand", "loop")):
        for kind, unit in enumerate(("wall", "cpu")):
            result[f"{part}_{unit}_ratio"] = round(float(ratios[number, kind]), 3)
    return result


def main() -> None:
    """Every environment, with and without overlap."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", nargs="+", default=["CartPole-v1", "images"])
    parser.add_argument("--overlap", nargs="+", default=["off", "on"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds that a step of `images` waits")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    for environment in given.environments:
        for overlap in given.overlap:
            result = measure(environment, overlap, given.rounds, given.iterations, given.pause)
            if given.json:
                print(json.dumps(result), flush=True)
                continue
            print(f"{environment}, overlap {overlap}, ms per iteration (ratio):", flush=True)
            for unit in ("wall", "cpu"):
                shown = [f"{part} {result[f'{part}_{unit}_ms']}" for part in ("bare", "network")]
                shown += [
                    f"{part} {result[f'{part}_{unit}_ms']} ({result[f'{part}_{unit}_ratio']})" for part in ("by_hand", "loop")
                ]
                shown.append(f"guards ({result[f'guards_{unit}_ratio']})")
                print(f"  {unit:<5}" + ", ".join(shown), flush=True)


if __name__ == "__main__":
    main()
