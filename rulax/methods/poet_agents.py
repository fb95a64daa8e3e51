"""How POET's agents learn and are scored: by evolution strategies, as in the paper, or by a rule such as PPO."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from rulax.agents.base import Agent
from rulax.agents.distributions import likeliest_choice
from rulax.agents.gaussian import make_gaussian_agent
from rulax.discovery.estimators import SIGNS, draw_noise, evolution_gradient
from rulax.envs.base import Environment, HostEnvironment
from rulax.envs.tasks import innermost, mutation_of
from rulax.envs.wrappers import TimeLimit
from rulax.envs.wrappers import streams as make_streams
from rulax.errors import UserError
from rulax.learning.life import init_agent, make_learner
from rulax.learning.rollout import Actor, begin
from rulax.learning.train import CompiledTrainer, TrainerConfig, TrainState
from rulax.learning.update import LearnerState
from rulax.rules.base import Recipe
from rulax.settings import Network
from rulax.types import Array, Level, PyTree

NETWORK = Network(hidden=(16,), activation="tanh")


@dataclasses.dataclass(frozen=True)
class Evolving:
    """Evolution strategies, with the constants of the paper's code but for the number of pairs."""

    pairs: int = 16  # of opposite perturbations, in every step
    rollouts: int = 16  # episodes of a score
    noise: tuple[float, float, float] = (0.1, 0.01, 0.999)  # of a perturbation: at first, at least, and its decay per step
    rate: tuple[float, float, float] = (0.01, 0.001, 0.9999)  # of Adam, likewise
    weight_decay: float = 0.01
    network: Network = NETWORK

    def __post_init__(self) -> None:
        for name in ("pairs", "rollouts"):
            if getattr(self, name) < 1:
                raise ValueError(f"evolution needs {name} of at least 1, not {getattr(self, name)}")


class Evolved(NamedTuple):
    """An agent and what it is evolved by."""

    agent: Agent
    moments: optax.OptState
    age: Array  # [] int32, steps since the optimiser was new: noise and rate fall with it


class CompiledAgents:
    """How agents are scored in a compiled environment, however they learn."""

    steps_each: int  # environment steps of one iteration of learning, of one member

    def __init__(self, environment: Environment, rollouts: int, compile_options: dict[str, Any] | None = None):
        # From what is wrong altogether to what one option mends.
        check_compiled(environment)
        mutation_of(environment)
        self.environment, self.rollouts, self.horizon = environment, rollouts, horizon_of(environment)
        self.compile_options = compile_options  # `COMPILE_FAST` for what runs only for seconds
        self._score = jax.jit(jax.vmap(self._mean_return), compiler_options=compile_options)

    def score(self, members: PyTree, tasks: PyTree, keys: Array) -> np.ndarray:
        """Mean returns [N] of some episodes each, as the agents are."""
        return np.asarray(self._score(self.agent(members), tasks, keys))

    def agent(self, members: Any) -> Agent:
        """The agents alone, of one member or of several."""
        raise NotImplementedError

    def episode(self, agent: Agent, task: PyTree, key: Array) -> Array:
        """The return [] of one episode, by the likeliest actions."""
        return play_once(self.environment, self.horizon, agent, task, key)

    def _mean_return(self, agent: Agent, task: PyTree, key: Array) -> Array:
        keys = jax.random.split(key, self.rollouts)
        return jnp.mean(jax.vmap(functools.partial(self.episode, agent, task))(keys))


class EvolvedAgents(CompiledAgents):
    """Agents that are evolved. It implements `poet.Agents`."""

    def __init__(self, environment: Environment, evolving: Evolving, compile_options: dict[str, Any] | None = None):
        super().__init__(environment, evolving.rollouts, compile_options)
        if not environment.real_dimensions:
            raise UserError(
                f"evolved agents act by real numbers, and in {name_of(environment)} an action is a choice: let agents learn by a "
                "rule there, TrainedAgents(environment, make_rule('ppo'))"
            )
        self.evolving, self.adam = evolving, self.optimiser()
        self.steps_each = 2 * evolving.pairs * self.horizon
        self._improve = jax.jit(self._improved, compiler_options=compile_options)

    def agent(self, members: Evolved) -> Agent:
        return members.agent

    @staticmethod
    def optimiser() -> optax.GradientTransformation:
        """Adam, whose rate falls with a member's age."""
        return optax.scale_by_adam()

    def fresh(self, key: Array) -> Evolved:
        """An agent whose actions are small."""
        agent = make_gaussian_agent(
            key, self.environment.observation, self.environment.real_dimensions, self.evolving.network, deviation=0.1
        )
        return Evolved(agent, self.adam.init(agent), jnp.zeros((), jnp.int32))

    def improve(self, members: Evolved, tasks: PyTree, key: Array, iterations: int) -> Evolved:
        """Members [M] after so many steps of evolution, each on its own task."""
        return self._improve(members, tasks, key, iterations)

    def transplant(self, sources: Evolved, targets: Evolved) -> Evolved:
        """The agents of the one with the optimisers of the other."""
        return targets._replace(agent=sources.agent)

    def _improved(self, members: Evolved, tasks: PyTree, key: Array, iterations: Array) -> Evolved:
        def one(index: Array, members: Evolved) -> Evolved:
            keys = jax.random.split(jax.random.fold_in(key, index), len(members.age))
            return jax.vmap(self.step)(members, tasks, keys)

        # The number of iterations is no constant of the program: one serves learning, tuning and baselines.
        return jax.lax.fori_loop(0, iterations, one, members)

    def step(self, member: Evolved, task: PyTree, key: Array) -> Evolved:
        """One step: antithetic perturbations, centred ranks, Adam.

        The two of a pair meet the same episode, and every pair another: a step is to be right for the task, not for one episode.
        """
        key_noise, key_episodes = jax.random.split(key)
        directions = draw_noise(member.agent, self.evolving.pairs, key_noise)
        noise = fallen(self.evolving.noise, member.age)

        def of_pair(direction: PyTree, key: Array) -> Array:
            shifted = lambda sign: jax.tree.map(lambda p, e: p + sign * noise * e, member.agent, direction)  # noqa: E731
            return jax.vmap(lambda sign: self.episode(shifted(sign), task, key))(SIGNS.astype(np.float32))

        keys = jax.random.split(key_episodes, self.evolving.pairs)
        fitness = jnp.ravel(jax.vmap(of_pair)(directions, keys).T)
        return self.learned(member, directions, fitness)

    def learned(self, member: Evolved, directions: PyTree, fitness: Array) -> Evolved:
        """The member after one step of Adam, from fitness [2 P] of perturbations [P, ...] and their opposites."""
        grads = evolution_gradient(fitness, directions, fallen(self.evolving.noise, member.age))
        grads = jax.tree.map(lambda grad, param: grad + self.evolving.weight_decay * param, grads, member.agent)
        updates, moments = self.adam.update(grads, member.moments)
        rate = fallen(self.evolving.rate, member.age)
        return Evolved(jax.tree.map(lambda p, u: p - rate * u, member.agent, updates), moments, member.age + 1)


class TrainedAgents(CompiledAgents):
    """Agents that learn by a rule, such as PPO; an iteration is an update. It implements `poet.Agents`."""

    def __init__(self, environment: Environment, recipe: Recipe, rollouts: int = 8, compile_options: dict[str, Any] | None = None):
        super().__init__(environment, rollouts, compile_options)
        if recipe.learning.replay:
            raise UserError(
                "POET's agents move from one environment to another, where what they replay would be of the one before: give "
                "TrainedAgents a rule that learns from fresh experience alone, such as ppo"
            )
        # A schedule would end with a run whose length nobody knows.
        self.recipe = recipe._replace(learning=dataclasses.replace(recipe.learning, schedule="constant"))
        self.streams = make_streams(environment, recipe.learning.streams)
        self.steps_each = recipe.learning.streams * recipe.learning.unroll
        self._trainers: dict[int, tuple[CompiledTrainer, TrainState]] = {}
        self._start = jax.jit(jax.vmap(self._begun))
        try:
            jax.eval_shape(self.fresh, jax.random.key(0))
        except ValueError as error:  # such as a rule that needs one choice per step
            raise UserError(f"the rule of TrainedAgents does not suit {name_of(environment)}: {error}") from error

    def agent(self, members: LearnerState) -> Agent:
        return members.params

    def fresh(self, key: Array) -> LearnerState:
        """An agent as the rule's recipe makes it."""
        return init_agent(self.recipe, make_learner(self.recipe, 1), self.environment, key)

    def improve(self, members: LearnerState, tasks: PyTree, key: Array, iterations: int) -> LearnerState:
        """Members [M] after so many updates, each in new episodes of its own task."""
        number = len(members.updates)
        trainer, state = self._trainer(number)
        key_actors, key_lives = jax.random.split(key)
        actors = self._start(members, tasks, jax.random.split(key_actors, number))
        life = state.life._replace(learner_state=members, actor=actors, key=jax.random.split(key_lives, number))
        # Copied, because a trainer consumes the state that it is given.
        state = jax.tree.map(jnp.copy, TrainState(life, jnp.zeros((), jnp.int32)))
        while int(state.iteration) < iterations:
            state, _ = trainer.advance(state, iterations - int(state.iteration))
        return state.life.learner_state

    def transplant(self, sources: LearnerState, targets: LearnerState) -> LearnerState:
        """The agents of the one, with what their rule remembers, and the optimisers of the other."""
        return sources._replace(optimiser_state=targets.optimiser_state)

    def _trainer(self, number: int) -> tuple[CompiledTrainer, TrainState]:
        """One for so many agents: POET asks for three numbers, again and again."""
        if number not in self._trainers:
            trainer = CompiledTrainer(self.environment, self.recipe, TrainerConfig(number, ENDLESS))
            trainer.compile_options = self.compile_options
            self._trainers[number] = trainer, trainer.init(jax.random.key(0))
        return self._trainers[number]

    def _begun(self, member: LearnerState, task: PyTree, key: Array) -> Actor:
        return begin(self.streams, task, member.params.initial_memory(self.recipe.learning.streams), key)


ENDLESS = 2**30  # environment steps


def play_once(environment: Environment, horizon: int, agent: Agent, task: PyTree, key: Array) -> Array:
    """The return [] of one episode of at most `horizon` steps, by the likeliest actions."""
    key_reset, key_steps = jax.random.split(key)
    state, observation = environment.reset(task, key_reset)

    # All steps are made, and those after the end are not counted: what ends early would wait for the others anyway.
    def step(carry: tuple, key: Array) -> tuple[tuple, Array]:
        state, observation, first, memory, going = carry
        policy, memory = agent.act(jax.tree.map(lambda x: x[None], observation), first, memory)
        state, transition = environment.step(task, state, likeliest_choice(policy)[0], key)
        reward = jnp.where(going, transition.reward, 0.0)
        going &= ~(transition.terminated | transition.truncated)
        return (state, transition.observation, jnp.zeros(1, jnp.int8), memory, going), reward

    first = jnp.full(1, Level.LIFE, jnp.int8)
    begin = state, observation, first, agent.initial_memory(1), jnp.bool_(True)
    return jnp.sum(jax.lax.scan(step, begin, jax.random.split(key_steps, horizon))[1])


def fallen(schedule: tuple[float, float, float], age: Array) -> Array:
    """A number that falls from its first value by a factor per step, but not below its least."""
    first, least, factor = schedule
    return jnp.maximum(first * factor ** age.astype(jnp.float32), least)


def check_compiled(environment: Any) -> None:
    """Refuse what is no environment that runs inside of JAX."""
    if isinstance(environment, HostEnvironment):
        raise UserError(
            f"{name_of(environment)} steps on the host, and this needs an environment that runs inside of JAX, one with "
            "reset(task, key) and step(task, state, action, key); on the host there is HostEvolvedAgents (methods/poet_host.py)"
        )
    if not isinstance(environment, Environment):
        raise UserError(f"POET needs an environment that runs inside of JAX, as in make('hurdles'), not {environment!r}")


def name_of(environment: Any) -> str:
    """What errors call an environment."""
    return type(innermost(environment)).__name__


def horizon_of(environment: Environment) -> int:
    """The time limit of an environment, which fixed-length episodes need."""
    inner = environment
    while not isinstance(inner, TimeLimit):
        if not hasattr(inner, "environment"):
            raise UserError(
                "POET needs an environment whose episodes have a time limit: give it one with the option limit, or put "
                "TimeLimit(environment, steps) of rulax.envs.wrappers around it"
            )
        inner = inner.environment
    return inner.limit
