"""Population based training: agents learn side by side, and bad ones go on as copies of good ones (Jaderberg et al. 2017).

A turn follows a stretch of ordinary learning, after which every member has a score:

    parents = choose_parents(scores)      exploit: the worst copy one of the best, with weights, optimiser and hyper-parameters
    h' = 0.8 h, 1.2 h or drawn anew       explore: what was copied goes on with other hyper-parameters

A member is one row of any tree with leaves [K, ...]; only its score says how good it is. Hyper-parameters are arrays [K], so that
nothing is compiled again when they change. What is found is not one setting but a schedule: that of the best member's line.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from rulax.learning.members import FACTORS, exploit, explore
from rulax.types import Array, PyTree


class Space(NamedTuple):
    """Where a hyper-parameter may lie, both ends included."""

    low: float
    high: float
    scale: Literal["lin", "log", "odds"] = "lin"  # on which it is drawn evenly; odds: of a fraction f, log(f / (1 - f))

    def sample(self, key: Array, number: int) -> Array:
        """So many values [number], drawn evenly on the scale."""
        to, back = SCALES[self.scale]
        drawn = jax.random.uniform(key, (number,), minval=to(self.low), maxval=to(self.high))
        return self.clip(back(drawn))

    def clip(self, values: Array) -> Array:
        """Values no further than the ends."""
        return jnp.clip(values, self.low, self.high)


SCALES = {
    "lin": (lambda x: x, lambda x: x),
    "log": (jnp.log, jnp.exp),
    "odds": (lambda x: jnp.log(x / (1 - x)), jax.nn.sigmoid),
}


@dataclasses.dataclass(frozen=True)
class Pbt:
    """What a turn does."""

    spaces: Mapping[str, Space]  # by hyper-parameter
    selection: Literal["truncation", "tournament", "none"] = "truncation"
    share: float = 0.2  # truncation: how many are replaced, and how many may be copied; at least one
    factors: tuple[float, ...] = FACTORS
    resample: float = 0.25  # the probability that a hyper-parameter is drawn anew instead of multiplied
    copies: Literal["both", "weights", "hyperparameters"] = "both"
    explorers: Literal["copies", "all", "none"] = "copies"  # who explores


class Turned(NamedTuple):
    """A population after a turn."""

    members: PyTree  # leaves [K, ...]
    hyperparameters: dict[str, Array]  # [K] each
    scores: Array  # [K] those of the parents: what a copy is worth is what it is a copy of
    parents: Array  # [K] whom each member goes on as; itself, if it copied nobody


def turn(pbt: Pbt, members: PyTree, hyperparameters: Mapping[str, Array], scores: Array, key: Array) -> Turned:
    """Exploit, then explore.

    Args:
        pbt: how.
        members: leaves [K, ...]; random keys among them are never copied.
        hyperparameters: [K] each, for the names of `pbt.spaces`.
        scores: [K], higher is better; NaN for a member that has none yet, which neither copies nor is copied.
        key: of this turn.
    """
    key_parents, key_explore = jax.random.split(key)
    parents = choose_parents(pbt, scores, key_parents)
    copied = parents != jnp.arange(len(scores))
    if pbt.copies != "hyperparameters":
        members, scores = exploit((members, scores), parents)
    if pbt.copies != "weights":
        hyperparameters = exploit(dict(hyperparameters), parents)
    chosen = {"copies": copied, "all": jnp.ones_like(copied), "none": jnp.zeros_like(copied)}[pbt.explorers]
    return Turned(members, perturb_or_resample(pbt, hyperparameters, key_explore, chosen), scores, parents)


def choose_parents(pbt: Pbt, scores: Array, key: Array) -> Array:
    """Whom each member goes on as, [K] -> [K].

    * truncation: a member of the worst `share` draws one of the best `share` and copies it.
    * tournament: every member draws another one and copies it if that one is better.
    """
    number = len(scores)
    itself = jnp.arange(number)
    if pbt.selection == "none":
        return itself
    if pbt.selection == "tournament":
        rivals = (itself + jax.random.randint(key, (number,), 1, number)) % number
        return jnp.where(scores[rivals] > scores, rivals, itself)
    few = max(1, int(pbt.share * number))
    known = jnp.isfinite(scores)
    worst = jnp.argsort(jnp.where(known, scores, jnp.inf))[:few]
    best = jnp.argsort(jnp.where(known, scores, -jnp.inf))[number - few :]
    drawn = best[jax.random.randint(key, (number,), 0, few)]
    # Equals are copied too, as in the paper: else a population whose scores are all the same would never explore. A comparison
    # with NaN is False, so what has no score is left alone.
    replaced = jnp.isin(itself, worst) & (scores[drawn] >= scores)
    return jnp.where(replaced, drawn, itself)


def perturb_or_resample(pbt: Pbt, hyperparameters: Mapping[str, Array], key: Array, chosen: Array) -> dict[str, Array]:
    """Other hyper-parameters [K] for those that are `chosen` [K], within their spaces; those of the others stay."""
    key_factor, key_which, key_values = jax.random.split(key, 3)
    fractions = [name for name, space in pbt.spaces.items() if space.scale == "odds"]
    perturbed = explore(hyperparameters, key_factor, chosen, tuple(pbt.spaces), pbt.factors, fractions)
    found = dict(hyperparameters)
    for number, name in enumerate(sorted(pbt.spaces)):  # sorted: what is drawn does not depend on the order of a dictionary
        space, old = pbt.spaces[name], hyperparameters[name]
        anew = jax.random.bernoulli(jax.random.fold_in(key_which, number), pbt.resample, old.shape)
        drawn = space.sample(jax.random.fold_in(key_values, number), len(old))
        found[name] = jnp.where(chosen, jnp.where(anew, drawn, space.clip(perturbed[name])), old)
    return found


def draw(spaces: Mapping[str, Space], number: int, key: Array) -> dict[str, Array]:
    """The hyper-parameters [number] that a population begins with."""
    return {name: spaces[name].sample(jax.random.fold_in(key, index), number) for index, name in enumerate(sorted(spaces))}
