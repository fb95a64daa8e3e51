"""RL² in random MDPs, step by step: does it choose what everything that it has seen in this state speaks for?

    python benchmarks/mdp_steps.py [--core associative] [--updates 100] [--memory 64] [--streams 256]

Trains as `rulax method rl2 --experiment mdp-10` does, for so many updates (one CPU minute for 40), then plays 4,096 new tasks. At
each step an observer computes the posterior mean of the reward of each action in the present state, from N(1, 1) before anything
is seen and noise of 1. To choose its best and never look ahead earns 158.8, more than the planner (docs/methods/rl2.md).

Printed by how often the state was met before: how often the agent chooses that best action (or one as good), by how much what it
chooses is expected to pay less, and how often it chooses the best action over all states, which is what one bandit instead of ten
would do. Then the reward of each of the ten episodes.
"""

from __future__ import annotations

import argparse
import dataclasses

import jax
import numpy as np

from rulax.methods.experiments.rl2 import MDP
from rulax.methods.rl2 import make_trainer, play_trials
from rulax.parallel.setup import set_up

STATES, ACTIONS, STEPS, EPISODES, TASKS, SEED = 10, 5, 100, 10, 4096, 2016
MOST = 11  # earlier visits; more count as so many


def compare(place: np.ndarray, action: np.ndarray, reward: np.ndarray) -> None:
    """Print the table from where the agent was, what it did and what it saw that paid, [T, N] each."""
    streams = np.arange(place.shape[1])
    count, total = (np.zeros((len(streams), STATES, ACTIONS)) for _ in range(2))
    visits = np.zeros((len(streams), STATES), int)
    rows = []  # [earlier visits, as good as the best, short of it, best over all states]
    for here, chosen, paid in zip(place, action, reward, strict=True):
        mean = (1 + total[streams, here]) / (1 + count[streams, here])
        short = mean.max(1) - mean[streams, chosen]
        anywhere = (1 + total.sum(1)) / (1 + count.sum(1))
        rows.append(np.stack([visits[streams, here].clip(max=MOST), short < 1e-6, short, anywhere.argmax(1) == chosen]))
        count[streams, here, chosen] += 1
        total[streams, here, chosen] += paid
        visits[streams, here] += 1
    met, agrees, short, everywhere = np.concatenate(rows, -1)
    print("earlier visits   best of this state   short of it   best over all states")
    for number in range(1, MOST + 1):  # at the first visit all actions are as good
        of = met == number
        print(f"{number:14}   {agrees[of].mean():18.3f}   {short[of].mean():11.3f}   {everywhere[of].mean():20.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--core", choices=["gru", "lstm", "associative"], default="associative")
    parser.add_argument("--memory", type=int, default=64, help="its width")
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--streams", type=int, default=256, help="trials per update")
    parser.add_argument("--entropy-cost", type=float, default=MDP.entropy_cost)
    parser.add_argument("--seed", type=int, default=11)
    options = parser.parse_args()
    set_up("cpu")
    sizes = {name: value for name, value in vars(options).items() if name != "seed"}
    rl2 = dataclasses.replace(MDP, steps=STEPS, episodes=EPISODES, **sizes)
    trainer = make_trainer(rl2)
    state = trainer.init(jax.random.key(options.seed))
    while not trainer.done(state):
        state, _ = trainer.advance(state)
    played, _ = play_trials(rl2.trials(), STEPS, trainer.agent(state), TASKS, SEED)
    expected = np.asarray(played.reward)
    trial = expected.sum(0)
    print(f"{rl2.updates * rl2.streams * STEPS:,} steps: {trial.mean():.1f} ± {1.96 * trial.std() / np.sqrt(TASKS):.1f}")
    # An observation is the state, the action before, its reward, and more; so a step's reward stands in the next one.
    observation = np.asarray(played.observation)
    place, paid = observation[: STEPS - 1, :, :STATES].argmax(-1), observation[1:STEPS, :, STATES + ACTIONS]
    compare(place, np.asarray(played.action)[: STEPS - 1], paid)
    print("by episode", *(f"{each:.2f}" for each in expected.reshape(EPISODES, -1, TASKS).sum(1).mean(-1)))


if __name__ == "__main__":
    main()
