"""Is my rule better than PPO? Names, objects and options stand side by side; intervals say what can be said."""

import sys

import rulax
from rulax.rules.actor_critic import actor_critic

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000


def short_sighted():
    """A rule of your own may as well be an old one with another constant."""
    return actor_critic(discount=0.9)


result = rulax.compare(["catch"], rules=["ppo", short_sighted, {"name": "ppo", "clip": 0.1}], steps=steps, seeds=3, hidden=(32,))
print(result.table)
print("normalised scores, [seeds, environments]:", {rule: scores.shape for rule, scores in result.scores.items()})
print("the page:", result.folder / "report.html")
