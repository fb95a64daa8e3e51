"""Skills without a reward (DIAYN): an ordinary rule inside, whose agents are paid for being recognisable instead.

The rule itself adds nothing but a metric. What makes skills is around it: an environment that draws one per episode and shows it
(`envs/lasting.py: with_skill`, which the recipe asks for), and an agent whose discriminator pays for it (`agents/diayn.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any

from rulax.agents.diayn import make_skilled_agent
from rulax.rules import actor_critic, ppo
from rulax.rules.base import Recipe, UpdateRule
from rulax.settings import Bounds, Fraction
from rulax.values.normalisation import masked_mean

INNER: dict[str, tuple[Callable[..., UpdateRule], Any]] = {
    "ppo": (ppo.ppo, ppo),
    "actor_critic": (actor_critic.actor_critic, actor_critic),
}
MOST_SKILLS = 256  # each is seen in every 256th episode then; with more, a discriminator of this size tells hardly any apart


def diayn(
    skills: Annotated[int, Bounds(at_least=2, at_most=MOST_SKILLS)] = 6,
    inner: str = "ppo",
    discount: Fraction = 0.95,
    entropy_cost: Annotated[float, Bounds(at_least=0)] = 0.01,
    discriminator_rate: Annotated[float, Bounds(above=0)] = 1e-3,
    discriminator_steps: Annotated[int, Bounds(at_least=1)] = 4,
    discriminator_hidden: Annotated[int, Bounds(at_least=1)] = 64,
) -> Recipe:
    """Diversity is all you need (Eysenbach et al. 2018): maximise I(S; Z) + H(A | S, Z).

    z ~ uniform, once per episode;  r_t = log q(z | s_{t+1}) - log(1 / skills), from which the inner rule learns
    q follows the gradient of mean log q(z | s_{t+1}), `discriminator_steps` steps of Adam after each unroll

    Args:
        skills: how many there are.
        inner: the rule that learns from these rewards, `ppo` or `actor_critic`.
        discount: of the inner rule.
        entropy_cost: weight of the inner rule's entropy bonus, which keeps every skill as random as it can be.
        discriminator_rate: step size of the discriminator; too large, and what a skill is paid for changes faster than it learns.
        discriminator_steps: how many such steps follow each unroll.
        discriminator_hidden: width of the discriminator's two hidden layers.
    """
    if inner not in INNER:
        raise ValueError(f"rule 'diayn': inner must be {' or '.join(INNER)}, not '{inner}'")
    make, module = INNER[inner]
    rule = make(discount=discount, entropy_cost=entropy_cost)

    def targets(rule_params, rule_state, batch):
        made, rule_state, metrics = rule.targets(rule_params, rule_state, batch)
        experience = batch.experience
        return made, rule_state, metrics | {"skill_reward": masked_mean(experience.reward, experience.valid)}

    make_agent = functools.partial(
        make_skilled_agent, rate=discriminator_rate, steps=discriminator_steps, hidden=discriminator_hidden
    )
    return Recipe(rule._replace(targets=targets), module.LEARNING, module.NETWORK, make_agent, {"with_skill": skills})
