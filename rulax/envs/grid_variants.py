"""The registered grid environments and chains: those of the learned policy gradient (Oh et al. 2020, tables in A.1-A.3) and two
more.

Each function gives an environment; its time limit stands beside its name in `registry.py`.
"""

from __future__ import annotations

from rulax.envs.chain import DelayedChain
from rulax.envs.gridworld import GridWorld, Kind

DENSE = (Kind(1.0, 0.0, 0.05, 2), Kind(-1.0, 0.5, 0.1), Kind(-1.0, 0.0, 0.5))
LONG_HORIZON = (Kind(1.0, 0.0, 0.01, 2), Kind(-1.0, 0.5, 1.0, 2))


def tabular_dense() -> GridWorld:
    """Two good objects that come back now and then, a bad one that may end the episode, and another that soon comes back."""
    return GridWorld(11, 11, DENSE, view="tabular")


def tabular_sparse() -> GridWorld:
    """One good and one bad object; both end the episode."""
    return GridWorld(13, 13, (Kind(1.0, 1.0), Kind(-1.0, 1.0)), view="tabular")


def tabular_long_horizon() -> GridWorld:
    """Good objects come back rarely, bad ones at once and often end the episode."""
    return GridWorld(11, 11, LONG_HORIZON, view="tabular")


def tabular_longer_horizon() -> GridWorld:
    """Five dangerous objects on a small grid, and good ones that are rare; 8,064 states."""
    return GridWorld(7, 9, (Kind(1.0, 0.1, 0.01, 2), Kind(-1.0, 0.8, 1.0, 5)), view="tabular")


def tabular_long_dense() -> GridWorld:
    """Four good objects that come back very rarely."""
    return GridWorld(11, 11, (Kind(1.0, 0.0, 0.005, 4),), view="tabular")


def tiny_sparse() -> GridWorld:
    """A 5 x 5 grid with one goal and one trap: learned within a hundred updates, so discovery need not wait long."""
    return GridWorld(5, 5, (Kind(1.0, 1.0), Kind(-1.0, 1.0)), view="tabular", moves=5)


def tiny_dense() -> GridWorld:
    """A 5 x 5 grid with a good and a bad object that come back; the bad one may end the episode."""
    return GridWorld(5, 5, (Kind(1.0, 0.0, 0.1), Kind(-1.0, 0.5, 0.1)), view="tabular", moves=5)


def random_dense() -> GridWorld:
    """The objects of tabular_dense, somewhere else in every episode."""
    return GridWorld(11, 11, DENSE, placement="random")


def random_long_horizon() -> GridWorld:
    """The objects of tabular_long_horizon, somewhere else in every episode."""
    return GridWorld(11, 11, LONG_HORIZON, placement="random")


def random_small() -> GridWorld:
    """A 5 x 7 grid with two good and two bad objects."""
    return GridWorld(5, 7, (Kind(1.0, 0.0, 0.05, 2), Kind(-1.0, 0.5, 0.1, 2)), placement="random")


def random_small_sparse() -> GridWorld:
    """A 5 x 7 grid with one good and two bad objects, all of which end the episode."""
    return GridWorld(5, 7, (Kind(1.0, 1.0, 1.0), Kind(-1.0, 1.0, 1.0, 2)), placement="random")


def random_very_dense() -> GridWorld:
    """One good object that reappears at once elsewhere: run after it."""
    return GridWorld(11, 11, (Kind(1.0, 0.0, 1.0),), placement="random")


def delayed() -> GridWorld:
    """The objects of random_small; what was collected is paid out only at every tenth step. The debt cannot be seen."""
    return GridWorld(5, 7, (Kind(1.0, 0.0, 0.05, 2), Kind(-1.0, 0.5, 0.1, 2)), placement="random", payday=10)


def step_cost() -> GridWorld:
    """Every step costs 0.1: the goal pays 2 and is worth the way; an exit pays 0 and only stops the cost."""
    return GridWorld(7, 7, (Kind(2.0, 1.0), Kind(0.0, 1.0)), view="tabular", moves=5, step_reward=-0.1)


def chain_short() -> DelayedChain:
    """Up to 30 steps, no noise."""
    return DelayedChain(longest=30)


def chain_short_noisy() -> DelayedChain:
    """Up to 30 steps, random rewards on the way."""
    return DelayedChain(longest=30, noise=1.0)


def chain_long() -> DelayedChain:
    """Up to 50 steps, no noise."""
    return DelayedChain(longest=50)


def chain_long_noisy() -> DelayedChain:
    """Up to 50 steps, random rewards on the way."""
    return DelayedChain(longest=50, noise=1.0)


def chain_distractor() -> DelayedChain:
    """Up to 30 steps, 20 random bits in every observation."""
    return DelayedChain(longest=30, distractors=20)
