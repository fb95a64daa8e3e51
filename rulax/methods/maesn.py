"""MAESN (Gupta et al. 2018): exploration that is coherent over an episode, by a latent variable that is drawn once per episode.

    z ~ N(mu_i, sigma_i) as an episode starts,  a ~ pi_theta(. | s, z)
    (mu_i, log sigma_i, theta)' = (mu_i, log sigma_i, theta) + alpha * grad J_i           inner update: D_i is collected before it
    all mu_i, sigma_i, theta, alpha <- Adam on  mean_i grad [L'_i(after it; D'_i) + c KL(N(mu_i, sigma_i) || N(0, 1))]

So each task of a finite set has a latent distribution of its own to start from, and every parameter a step size. The divergence
keeps these distributions near N(0, 1), from which a new task starts. All else is MAML (`maml.py`); the agent is `agents/latent.py`.
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
from rulax.learning.update import Learner, LearnerState, init_learner_state
from rulax.methods.adaptation import Adaptation, MetaState, Tasks, environment_tasks
from rulax.methods.maml import MAML, AdaptedAgents, outer_problem, outer_step
from rulax.rules.base import UpdateRule
from rulax.types import Array, Metrics, PyTree
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


def init_params(agent: LatentAgent, tasks: int, latent_rate: float, rate: float) -> MAESNParams:
    """Meta-parameters before the first meta-update: every task starts from the prior.

    Args:
        agent: a fresh one.
        tasks: how many training tasks there are.
        latent_rate: first step size of the mean and the log-deviation of a latent distribution.
        rate: that of all other parameters.
    """
    sizes = jax.tree.map(lambda part: jnp.full_like(part, jnp.log(rate)), split(agent)[0])
    own = jax.tree.map(lambda part: jnp.full_like(part, jnp.log(latent_rate)), agent.latents)
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


# -- the meta-update --------------------------------------------------------------------------------------------------------------


def meta_update(maesn: MAESN, state: MetaState, key: Array) -> tuple[MetaState, Metrics]:
    """One meta-update: MAML's, with the divergence from the prior in its outer loss."""
    return outer_step(maesn.maml, lambda carried: latent_problem(maesn, carried), state, key)


def latent_problem(maesn: MAESN, carried: PyTree = None) -> Problem[Adaptation, AdaptedAgents]:
    """MAML's outer loss plus c KL(N(mu_i, sigma_i) || N(0, 1)), where the task's latent distribution is that before its update."""
    maml = maesn.maml
    problem = outer_problem(maml.learner, maml.outer, maml.memory, maml.tasks.init, carried)

    judge_agents = problem.judge
    assert judge_agents  # MAML's has one

    def judge(updates: Updates, rule_params: PyTree, adaptation: Adaptation, adapted: AdaptedAgents) -> tuple[Array, Metrics]:
        loss, metrics = judge_agents(updates, rule_params, adaptation, adapted)
        agent = adaptation.record.learner_state.params
        assert isinstance(agent, LatentAgent)
        divergence = from_prior(agent.latents)
        return loss + maesn.kl_weight * divergence, metrics | {"kl_to_prior": divergence}

    return problem._replace(judge=judge)


def from_prior(latents: Gaussian) -> Array:
    """KL(N(mean, deviation²) || N(0, 1)), [], in nats, summed over the dimensions of the latent variable."""
    mean, log_deviation = latents
    return 0.5 * jnp.sum(jnp.square(mean) + jnp.exp(2 * log_deviation) - 1 - 2 * log_deviation)
