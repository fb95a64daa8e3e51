"""MAESN (Gupta et al. 2018): exploration that is coherent over an episode, by a latent variable that is drawn once per episode.

    z ~ N(mu_i, sigma_i) as an episode starts,  a ~ pi_theta(. | s, z)
    (mu_i, log sigma_i, theta)' = (mu_i, log sigma_i, theta) + alpha * grad J_i           inner update: D_i is collected before it
    all mu_i, sigma_i, theta, alpha <- Adam on  mean_i grad [L'_i(after it; D'_i) + c KL(N(mu_i, sigma_i) || N(0, 1)) + e X_i(D_i)]

So each task of a finite set has a latent distribution of its own to start from, and every parameter a step size. The divergence
keeps these distributions near N(0, 1), from which a new task starts. X, which the paper does not have, pays for the episodes
without which the update would have had nothing to learn from (`exploration_loss`). All else is MAML (`maml.py`); the agent is
`agents/latent.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from rulax.agents.base import split
from rulax.agents.latent import NOISE, LatentAgent
from rulax.discovery.estimators import Problem
from rulax.discovery.memory import Updates
from rulax.envs.tasks import FiniteSet
from rulax.learning.update import Learner, LearnerState, init_learner_state, read
from rulax.methods.adaptation import Adaptation, MetaState, Tasks, environment_tasks
from rulax.methods.maml import MAML, AdaptedAgents, outer_problem, outer_step
from rulax.rules.base import UpdateRule
from rulax.rules.ppo import clip_drift
from rulax.types import Array, Experience, Metrics, PyTree
from rulax.values.policies import log_probability
from rulax.values.real_policies import Gaussian

STEP_SIZES = "step_sizes"  # the name under which an agent has them of its own


class MAESNParams(NamedTuple):
    """What is meta-learned."""

    agent: LatentAgent  # its own latent distribution is the prior, and stays it
    latents: Gaussian  # [tasks, L] each: the latent distribution that each training task starts from
    log_step_sizes: LatentAgent  # of every trained parameter of an agent


class MAESN(NamedTuple):
    """The parts of a meta-update."""

    maml: MAML  # its tasks, learner and outer rule are those that the functions below make
    kl_weight: float = 0.1  # c
    exploration: float = 0.0  # e; 0 is the paper's


def init_params(agent: LatentAgent, tasks: int, latent_rate: float, spread_rate: float, rate: float) -> MAESNParams:
    """Meta-parameters before the first meta-update: every task starts from the prior.

    Args:
        agent: a fresh one.
        tasks: how many training tasks there are.
        latent_rate: first step size of the mean of a latent distribution.
        spread_rate: that of its log-deviation.
        rate: that of all other parameters.
    """
    sizes = jax.tree.map(lambda part: jnp.full_like(part, jnp.log(rate)), split(agent)[0])
    own = Gaussian(
        *(jnp.full_like(part, jnp.log(size)) for part, size in zip(agent.latents, (latent_rate, spread_rate), strict=True))
    )
    sizes = eqx.tree_at(lambda each: each.latents, sizes, own)
    latents = jax.tree.map(lambda part: jnp.broadcast_to(part, (tasks, *part.shape)), agent.latents)
    return MAESNParams(agent, latents, sizes)


# -- tasks and learners -----------------------------------------------------------------------------------------------------------


def training_tasks(environment: FiniteSet, horizon: int, trajectories: int) -> Tasks:
    """The tasks of a finite set, each with its number, by which `start_with_latents` finds its latent distribution."""
    tasks = environment_tasks(environment, horizon, trajectories)

    def sample(key: Array) -> tuple[Array, PyTree]:
        number = jax.random.randint(key, (), 0, environment.number)
        return number, environment.task(number)

    return tasks._replace(
        sample=sample, collect=lambda task, agent, key: tasks.collect(task[1], agent, key), init=start_with_latents
    )


def start_with_latents(learner: Learner, meta_params: MAESNParams, task: tuple[Array, PyTree], key: Array) -> LearnerState:
    """A training task's agent: its latent distribution is the task's own."""
    own = jax.tree.map(lambda part: part[task[0]], meta_params.latents)
    agent = eqx.tree_at(lambda agent: agent.latents, meta_params.agent, own)
    return start_from_prior(learner, meta_params._replace(agent=agent), task, key)


def start_from_prior(learner: Learner, meta_params: MAESNParams, task: PyTree, key: Array) -> LearnerState:
    """The agent of a task that training never met."""
    del task
    sizes = jax.tree.map(jnp.exp, meta_params.log_step_sizes)
    return init_learner_state(learner, meta_params.agent, key, {STEP_SIZES: sizes})


def latent_learner(rule: UpdateRule) -> Learner:
    """Gradient descent by the step sizes that each agent has of its own."""

    def update(grads: PyTree, state: Any, params: PyTree = None, *, hyperparameters: dict[str, PyTree]) -> tuple[PyTree, Any]:
        return jax.tree.map(lambda size, slope: -size * slope, hyperparameters[STEP_SIZES], grads), state

    optimiser = optax.GradientTransformationExtraArgs(lambda params: (), update)
    return Learner(rule_without_noise(rule), optimiser, own=(STEP_SIZES,))


def rule_without_noise(rule: UpdateRule) -> UpdateRule:
    """The same rule, whose baseline does not see what the latent variable was drawn from.

    A latent variable is drawn as an action is: a baseline that knew it would explain away what the update is to learn, namely
    which latent variables are better than others.
    """

    def targets(rule_params, rule_state, batch):
        seen = {name: part for name, part in batch.experience.observation.items() if name != NOISE}
        return rule.targets(rule_params, rule_state, batch._replace(experience=batch.experience._replace(observation=seen)))

    return rule._replace(targets=targets)


def rule_with_credit(rule: UpdateRule) -> UpdateRule:
    """The same update, whose derivative also knows that actions decide what a latent variable's return is.

    The ratio of an episode's first step includes that of its latent variable, so the derivative of an update of the latent
    distribution says what would have changed had this action been another: but only for the first action. The term added here is
    (ratio of z - 1) (ratio of a_t - 1) A_t for all later ones. It and its gradient are 0 where the agent that acted is updated; its
    second derivative with respect to the latent distribution and the network is not.
    """

    def loss(rule_params, taken, targets, experience):
        losses, metrics = rule.loss(rule_params, taken, targets, experience)
        new, old = taken["policy"], experience.behaviour
        of_latent = jnp.exp(new.latents.log_probability(old.latent) - old.latents.log_probability(old.latent))
        of_action = jnp.exp(log_probability(new.actions, experience.action) - log_probability(old.actions, experience.action))
        return losses - (1 - old.drawn) * (of_latent - 1) * (of_action - 1) * targets["advantage"], metrics

    return rule._replace(loss=loss)


# -- the meta-update --------------------------------------------------------------------------------------------------------------


def meta_update(maesn: MAESN, state: MetaState, key: Array) -> tuple[MetaState, Metrics]:
    """One meta-update: MAML's, with the divergence from the prior in its outer loss."""
    return outer_step(maesn.maml, lambda carried: latent_problem(maesn, carried), state, key)


def latent_problem(maesn: MAESN, carried: PyTree = None) -> Problem[Adaptation, AdaptedAgents]:
    """MAML's outer loss plus c KL(N(mu_i, sigma_i) || N(0, 1)) + e X_i, both of the agent before its update."""
    maml = maesn.maml
    problem = outer_problem(maml.learner, maml.outer, maml.memory, maml.tasks.init, carried)

    judge_agents = problem.judge
    assert judge_agents  # MAML's has one

    def judge(updates: Updates, rule_params: PyTree, adaptation: Adaptation, adapted: AdaptedAgents) -> tuple[Array, Metrics]:
        loss, metrics = judge_agents(updates, rule_params, adaptation, adapted)
        agent = adaptation.record.learner_state.params
        assert isinstance(agent, LatentAgent)
        divergence = from_prior(agent.latents)
        if maesn.exploration:
            before = jax.tree.map(lambda part: part[0], adaptation.record.experience)
            loss += maesn.exploration * exploration_loss(agent, before)
        return loss + maesn.kl_weight * divergence, metrics | {"kl_to_prior": divergence}

    return problem._replace(judge=judge)


def exploration_loss(agent: LatentAgent, experience: Experience, clip: float = 0.3) -> Array:
    """Minus the gain in the probability that at least one episode of a batch is paid, [].

    Where none is, an update has nothing to learn from. With M = 1 if one is, and M_e the same without episode e, the gradient of
    the probability is the mean of sum_e (M - M_e) grad log p(episode e): credit goes to an episode that was paid alone, and in it
    to the draw of the latent variable and the actions until it was paid. A second episode to the same place earns nothing. The
    mean is over steps, as that of other losses.
    """
    paid = experience.reward > 0  # [T, B]
    met = jnp.any(paid, 0)
    alone = met & (jnp.sum(met) == 1)
    until = jnp.cumsum(paid, 0) - paid == 0  # up to and including the first payment
    taken = read(agent, experience).taken["policy"]
    log_ratio = log_probability(taken, experience.action) - log_probability(experience.behaviour, experience.action)
    credit = (until & alone).astype(log_ratio.dtype)
    return -jnp.mean(jnp.exp(log_ratio) * credit - clip_drift(log_ratio, credit, clip))


def from_prior(latents: Gaussian) -> Array:
    """KL(N(mean, deviation²) || N(0, 1)), [], in nats, summed over the dimensions of the latent variable."""
    mean, log_deviation = latents
    return 0.5 * jnp.sum(jnp.square(mean) + jnp.exp(2 * log_deviation) - 1 - 2 * log_deviation)
