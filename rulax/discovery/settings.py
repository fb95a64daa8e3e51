"""Settings of discovery. No JAX here: the command line builds its flags from these fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from rulax.settings import setting

WHOLE = ("lifetime", "end")  # kinds of fitness for which a life is lived from beginning to end
PERTURBING = ("evolution", "pes")  # the estimators that live every window in pairs of perturbed lives, beside the agent's own


def estimator_words(settings: Mapping[str, Any]) -> str:
    """How the meta-gradient was estimated, from the fields of `Discovery`: the estimator, and what is unusual about it."""
    usual = {"objective": "policy_gradient", "fitness": "validation"}  # a record may be older than these settings
    unusual = [f"{name} {settings[name]}" for name in usual if settings.get(name, usual[name]) != usual[name]]
    return settings.get("estimator", "backprop") + (f" ({', '.join(unusual)})" if unusual else "")


@dataclasses.dataclass(frozen=True)
class Discovery:
    """The outer loop. Defaults are the paper's (Oh et al. 2025, Methods) where it states a number and two cores can bear it."""

    agents: int = setting(2, at_least=1)
    """Agents per environment, each with a lifetime of its own."""
    window: int = setting(20, at_least=1)
    """Agent updates through which one meta-gradient reaches (N)."""
    validation_unroll: int = setting(32, at_least=1)
    """Steps per stream of the experience by which a window is judged."""
    lifetimes: tuple[int, ...] = setting((100, 200, 400), at_least=1, not_empty=True)
    """Lengths of a lifetime in updates; each agent draws one with probability inversely proportional to it."""
    collection: Literal["on_policy", "before_window"] = setting("on_policy", before="on_policy")
    """Which agent collects a window's experience: the one that each update starts from, or, for all updates and for validation, the
    one before the window (as in DeepMind's notebook; importance weights then correct the critic's estimates)."""
    estimator: Literal["backprop", "first_order", "evolution", "pes"] = "backprop"
    """How the meta-gradient is estimated; pes is evolution whose perturbed lives go on from window to window."""
    objective: Literal["policy_gradient", "bootstrap"] = "policy_gradient"
    """What a window is judged by: the policy gradient on validation experience, or the distance to its own continuation."""
    memory: Literal["auto", "plain", "remat", "mixed", "both", "segments"] = "auto"
    """What backprop stores: all, or per update only the agent and its gradient (remat), or no inner backward pass (mixed), or both,
    or remat of only a few updates at a time (segments)."""
    agents_at_once: int = setting(0, at_least=0)
    """Agents of one environment that are differentiated at the same time; 0 means all, or what fits if memory is auto."""
    meta_optimiser: Literal["per_agent", "mean"] = "per_agent"
    """One Adam per agent and then the mean of their steps, or one Adam on the mean gradient."""
    meta_learning_rate: float = setting(1e-3, above=0)
    """Step size of the rule's parameters."""
    meta_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How that step size falls to zero over the run."""
    rule_init: Literal["open", "reference"] = setting("open", before="open")
    """Initial weights of a random rule: an open gate and distinct policy targets, or as in the reference, where a new agent's
    gate is shut and the first policy targets are almost uniform."""
    meta_clip: float = setting(1.0, at_least=0)
    """Largest norm of a meta-gradient; 0 means no limit."""
    policy_entropy_cost: float = setting(1e-2, at_least=0)
    """Reward for the entropy of the policy, in the outer loss."""
    prediction_entropy_cost: float = setting(1e-3, at_least=0)
    """Reward for the entropy of y and of z."""
    target_kl_cost: float = setting(1e-2, at_least=0)
    """Penalty on KL(slow policy || policy target), which keeps targets near."""
    target_mean_cost: float = setting(1e-3, at_least=0)
    """Penalty that keeps targets from drifting: on the squared mean of each target's logits, and for rule lpg on mean squares."""
    keep_cost: float = setting(0.0, at_least=0, before=0.0)
    """Penalty on KL(target of the rule of --init || target) for pi, y and z: keeps a rule that is discovered further near what it
    was."""
    critic_hidden: tuple[int, ...] = setting((256, 256), at_least=1, not_empty=True)
    """Widths of the hidden layers of the critic, which discovery alone uses."""
    critic_activate_last: bool = setting(True, before=True)
    """Whether the last of them is followed by the non-linearity (in the notebook it is not)."""
    critic_head_std: float = setting(0.0, at_least=0, before=0.0)
    """Standard deviation of the initial weights of the critic's head (0.01 in the notebook); 0 means 1/sqrt(inputs)."""
    critic_learning_rate: float = setting(3e-4, above=0)
    """Step size of the critic."""
    critic_discount: float = setting(0.997, at_least=0, at_most=1)
    """Discount of the critic's values."""
    critic_trace: float = setting(0.95, at_least=0, at_most=1)
    """Lambda of the critic's V-trace targets."""
    critic_learns_from: Literal["updates", "validation"] = "updates"
    """Experience that trains the critic: the fresh rollout of every update, or validation alone."""
    critic_statistics: Literal["all", "learned"] = setting("all", before="all")
    """Experience that enters the moving averages by which advantages are normalised: all that the critic judges, or only what it
    learns from (as in the notebook, where validation leaves no trace)."""
    pairs: int = setting(4, at_least=1)
    """Evolution and pes: antithetic pairs per agent and meta-step."""
    pairs_at_once: int = setting(0, at_least=0, before=0)
    """Evolution and pes: pairs of one agent that live at the same time; 0 means all, or what fits if memory is auto."""
    noise: float = setting(0.02, above=0)
    """Evolution and pes: standard deviation of the noise on the rule's parameters."""
    fitness_shaping: Literal["ranks", "values"] = setting("ranks", before="ranks")
    """Evolution and pes: what weighs the noise, the ranks of fitness or its values; only by values is pes without bias."""
    fitness: Literal["validation", "lifetime", "end"] = setting("validation", before="validation")
    """Evolution: what a rule is scored by, its agent's reward after the window, or its agent's return over a whole lifetime or in
    the last quarter of it, lived from beginning to end in every meta-step (the window then has no meaning)."""
    handover: int = setting(0, at_least=0, before=0)
    """Rule epg: meta-steps over which its loss takes over from PPO's, whose share falls from 1 to 0; with 0 it begins alone."""
    bootstrap_updates: int = setting(5, at_least=1)
    """Bootstrap objective: how many updates further its target is."""
    bootstrap_rate: float = setting(1e-3, above=0)
    """Bootstrap objective: step size of the last one, which follows the policy gradient."""
