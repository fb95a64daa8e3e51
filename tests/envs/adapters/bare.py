"""The bare packages behind the host adapters: for a stream's seed, a reset and a step of one copy, without rulax."""

import importlib.util
import math
import pathlib

import numpy as np


def atari(seed, rom="pong", **options):
    from ale_py.vector_env import AtariVectorEnv

    bare = AtariVectorEnv(rom, 1, num_threads=1, reward_clipping=False, use_fire_reset=False, **options)
    state = {"new": True}

    def reset():
        shown = bare.reset(seed=np.array([seed % 2**31]))[0] if state["new"] else bare.step(np.zeros(1, np.int64))[0]
        state["new"] = False
        return np.moveaxis(shown[0], 0, -1)

    def step(action):
        observation, reward, terminated, truncated, _ = bare.step(np.array([action]))
        return np.moveaxis(observation[0], 0, -1), float(reward[0]), bool(terminated[0]), bool(truncated[0])

    return reset, step


def crafter(seed, **options):
    import crafter

    bare = crafter.Env(seed=seed, **options)

    def step(action):
        observation, reward, done, _ = bare.step(action)
        dead = bare._player.health <= 0
        return observation, reward, dead, done and not dead

    return bare.reset, step


NETHACK = ("glyphs", "blstats", "message", "chars", "tty_cursor")


def nethack(seed, id, steps):
    """A game of NetHack with Gymnasium's time limit; nle sees to all else (who plays, and what may be done)."""
    import gymnasium
    import nle  # noqa: F401

    limits = {"max_episode_steps": steps, "disable_env_checker": True}
    bare = gymnasium.make(id, observation_keys=NETHACK, fix_moon_phase=True, **limits)
    random = np.random.default_rng(seed)

    def read(observation):
        *numbers, conditions, alignment = (int(each) for each in observation["blstats"])
        bits = [conditions >> bit & 1 for bit in range(13)]
        read = {key: value.copy() for key, value in observation.items()}
        read["blstats"] = np.array([math.copysign(math.log1p(abs(x)), x) for x in (*numbers, alignment)] + bits, np.float32)
        return read | {"tty_cursor": np.log([1.0 + each for each in observation["tty_cursor"]]).astype(np.float32)}

    def reset():
        game = bare.unwrapped.nethack._pynethack  # in C++, where the Challenge's class cannot forbid it
        game.set_initial_seeds(*(int(each) for each in random.integers(0, 2**31, 2)), False, None)
        return read(bare.reset()[0])

    def step(action):
        observation, reward, terminated, truncated, _ = bare.step(action)
        return read(observation), reward, terminated, truncated and not terminated

    return reset, step


def lab2d(seed, frames):
    import dmlab2d
    from dmlab2d import runfiles_helper

    lab = dmlab2d.Lab2d(runfiles_helper.find(), {"levelName": "pushbox", "episodeLengthFrames": str(frames)})
    bare = dmlab2d.Environment(lab, ["WORLD.RGB"], seed)

    def step(action):
        timestep = bare.step({"MOVE": int(action)})
        return (
            timestep.observation["WORLD.RGB"].copy(),
            timestep.reward,
            timestep.last(),
            False,
        )  # Lab2D says that its limit is an end

    return lambda: bare.reset().observation["WORLD.RGB"].copy(), step


def catch(seed, **options):
    from bsuite.environments.catch import Catch

    bare = Catch(seed=seed, **options)

    def step(action):
        timestep = bare.step(action)
        return timestep.observation.copy(), timestep.reward, timestep.last(), False  # Catch has no time limit

    return lambda: bare.reset().observation.copy(), step


def envpool(seed, id, read=lambda x: np.moveaxis(x[0], 0, -1), **options):
    import envpool

    bare = envpool.make(id, env_type="gymnasium", num_envs=1, seed=[seed % 2**31], **options)
    limit = options.get("max_episode_steps", envpool.make_spec(id).config.max_episode_steps)
    state = {"new": True}

    def reset():
        shown = bare.reset()[0] if state["new"] else bare.step(np.zeros(1, np.int32))[0]
        state["new"] = False
        return read(shown)

    def step(action):
        observation, reward, terminated, truncated, info = bare.step(np.array([action], np.int32))
        assert not truncated[0] or info["elapsed_step"][0] == limit
        return read(observation), float(reward[0]), bool(terminated[0]), bool(truncated[0] and not terminated[0])

    return reset, step


def boxoban():
    return str(pathlib.Path(importlib.util.find_spec("envpool").origin).parent)


def sokoban_planes(observation):
    """Walls and so on one by one, in a loop."""
    grid, shown = observation["grid"][0], np.zeros((10, 10, 10), np.float32)
    for row in range(10):
        for column in range(10):
            shown[row, column, grid[row, column, 0]] = shown[row, column, 5 + grid[row, column, 1]] = 1
    return shown


def minigrid(seed, id, **options):
    import gymnasium
    import minigrid  # noqa: F401
    from minigrid.wrappers import OneHotPartialObsWrapper

    bare = OneHotPartialObsWrapper(gymnasium.make(id, **options))
    state = {"seed": seed}

    def reset():
        return bare.reset(seed=state.pop("seed", None))[0]["image"].astype(np.float32)

    def step(action):
        observation, reward, terminated, truncated, _ = bare.step(action)
        return observation["image"].astype(np.float32), float(reward), terminated, truncated

    return reset, step
