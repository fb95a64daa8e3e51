"""PPO with Gaussian actions beside Stable-Baselines3's: the same environments, steps and hyper-parameters, one run per seed.

Each side needs an environment of its own (Stable-Baselines3 brings torch):

    python benchmarks/continuous_control.py rulax Pendulum-v1 --seeds 5 --out ours.json
    /path/to/sb3/bin/python benchmarks/continuous_control.py sb3 Pendulum-v1 --seeds 5 --out theirs.json

A run's figure is the mean return of the training episodes that ended in its last tenth, on both sides.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

# Of Pendulum-v1: those of rl-baselines3-zoo, without its state-dependent exploration. Of MuJoCo: Stable-Baselines3's defaults,
# with the 2,048 steps of a batch from four copies of the environment.
MUJOCO = {"envs": 4, "steps": 512, "batch": 64, "epochs": 10, "rate": 3e-4, "discount": 0.99, "trace": 0.95, "clip": 0.2}
SETTINGS = {"Pendulum-v1": MUJOCO | {"steps": 1024, "rate": 1e-3, "discount": 0.9}}


def run_sb3(env: str, steps: int, seed: int, normalise: str) -> float:
    """One run of Stable-Baselines3."""
    if normalise != "nothing":
        raise SystemExit("what Stable-Baselines3 normalises is not wired up here")
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)
    sizes, ended = SETTINGS.get(env, MUJOCO), []

    class Watch(BaseCallback):
        def _on_step(self) -> bool:
            ended.extend((self.num_timesteps, info["episode"]["r"]) for info in self.locals["infos"] if "episode" in info)
            return True

    model = PPO(
        "MlpPolicy",
        make_vec_env(env, sizes["envs"], seed=seed),
        learning_rate=sizes["rate"],
        n_steps=sizes["steps"],
        batch_size=sizes["batch"],
        n_epochs=sizes["epochs"],
        gamma=sizes["discount"],
        gae_lambda=sizes["trace"],
        clip_range=sizes["clip"],
        ent_coef=0.0,
        seed=seed,
        device="cpu",
    )
    model.learn(steps, callback=Watch())
    last = [total for step, total in ended if step > 0.9 * model.num_timesteps]
    return float(sum(last) / len(last))


def run_rulax(env: str, steps: int, seed: int, normalise: str) -> float:
    """One run of ours."""
    import rulax

    sizes = SETTINGS.get(env, MUJOCO)
    run = rulax.train(
        env,
        rule="ppo",
        steps=steps,
        seed=seed,
        streams=sizes["envs"],
        unroll=sizes["steps"],
        epochs=sizes["epochs"],
        minibatches=sizes["envs"] * sizes["steps"] // sizes["batch"],
        shuffle="steps",
        learning_rate=sizes["rate"],
        schedule="constant",
        rule_options={name: sizes[name] for name in ("discount", "trace", "clip")} | {"entropy_cost": 0.0},
        normalise_rewards=normalise != "nothing",
        normalise_observations=normalise == "both",
        quiet=True,
    )
    return run.final_returns[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("side", choices=["rulax", "sb3"])
    parser.add_argument("env")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--normalise", choices=["nothing", "rewards", "both"], default="nothing", help="ours only")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    run, returns, began = {"rulax": run_rulax, "sb3": run_sb3}[options.side], [], time.process_time()
    for seed in range(options.seeds):
        returns.append(run(options.env, options.steps, seed, options.normalise))
        result = {
            "side": options.side,
            "env": options.env,
            "steps": options.steps,
            "normalise": options.normalise,
            "returns": returns,
        }
        result["cpu_seconds_per_run"] = round((time.process_time() - began) / len(returns), 1)
        print(json.dumps(result), flush=True)
        if options.out:
            options.out.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
