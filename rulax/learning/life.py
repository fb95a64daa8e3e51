"""One agent's life as pure functions: `init_agent`, then `collect`, `store` and `sample_and_update` again and again.

learning/train.py repeats them for a whole run, for many seeds at once; learning/host.py uses those that run on the device.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rulax.agents import Agent, make_agent
from rulax.agents.base import write
from rulax.agents.episodic import EpisodicAgent
from rulax.agents.normalising import normalising
from rulax.agents.worst import learning_from_worst
from rulax.envs.base import Environment, Episode, HostEnvironment, Streams
from rulax.learning import replay as ring
from rulax.learning.optimisers import make_optimiser
from rulax.learning.priorities import trajectory_priority
from rulax.learning.rollout import Actor, act
from rulax.learning.update import NOTHING_OWN, Learner, LearnerState, follow_targets, init_learner_state, make_targets
from rulax.parallel.mesh import Layout
from rulax.rules.base import Recipe
from rulax.settings import Learning
from rulax.types import Array, Experience, Metrics, Policy, PyTree

NO_PRIORITY = "replay_priority needs a rule that says how far off each step was (dqn and q_learning do), and this one does not"


class Life(NamedTuple):
    """Everything that changes while one agent lives."""

    learner_state: LearnerState
    actor: Actor
    replay: ring.Replay | tuple[()]  # () where nothing is replayed
    key: Array


def lie(layout: Layout) -> Life:
    """Where the lives [K, ...] of several agents lie: each part by the device of its agent, what has streams also by theirs."""
    streams = layout.streams
    actor = Actor(layout.members, env_state=streams, observation=streams, first=streams, memory=streams)
    return Life(layout.members, actor, layout.members, layout.members)


def make_learner(recipe: Recipe, total_updates: int = 1, own: Collection[str] = ()) -> Learner:
    """The fixed part of a life, from a recipe.

    Args:
        recipe: the rule and its settings.
        total_updates: updates of the whole life, over which a schedule falls to zero.
        own: names of the hyper-parameters that each agent has of its own (learning/members.py): arrays in its `LearnerState`.
    """
    learning = recipe.learning
    prioritised = is_prioritised(learning)
    if prioritised and recipe.rule.priority is None:
        raise ValueError(NO_PRIORITY)
    return Learner(
        recipe.rule,
        make_optimiser(learning, gradient_steps(learning, total_updates), own),
        learning.epochs,
        learning.minibatches,
        learning.shuffle,
        learning.slow_decay,
        learning.slow_period,
        learning.reward_scale,
        prioritised,
        own=tuple(own),
    )


def is_prioritised(learning: Learning) -> bool:
    """Whether replay prefers some trajectories to others."""
    return bool(learning.replay and learning.replay_priority)


def gradient_steps(learning: Learning, updates: Any) -> Any:
    """Steps of the optimiser in so many updates (a number or an array)."""
    return updates * learning.epochs * learning.minibatches


def batch_size(learning: Learning) -> int:
    """Trajectories per update: as set, or one per stream."""
    return learning.batch or learning.streams


def warm_iterations(learning: Learning) -> int:
    """Unrolls to collect without learning from them, so that with the next one replay holds `warmup` trajectories."""
    return max(0, -(-learning.warmup // learning.streams) - 1) if learning.replay else 0


def init_agent(
    recipe: Recipe,
    learner: Learner,
    environment: Environment | HostEnvironment,
    key: Array,
    hyperparameters: Mapping[str, Array] = NOTHING_OWN,
) -> LearnerState:
    """A fresh agent for an environment, made by the recipe's `make_agent` or, where it names none, by ours.

    Args:
        recipe: its rule and network.
        learner: made from the same recipe, for the names in `hyperparameters`.
        environment: where it will act.
        key: for its parameters and the rule's state.
        hyperparameters: what this agent has of its own, [] each.
    """
    key_agent, key_rule = jax.random.split(key)
    real = environment.real_dimensions if recipe.network.action_distribution != "bins" else 0
    learning = recipe.learning
    agent = (recipe.make_agent or make_agent)(
        key_agent,
        environment.observation,
        environment.num_actions,
        recipe.rule.heads(environment.num_actions),
        recipe.network,
        environment.action_dimensions,
        recipe.learning.streams,
        **({"real_dimensions": real} if real else {}),  # else left out: a user's maker may not know it
    )
    scaled = learning.normalise_rewards or learning.reward_scale != 1 or "reward_scale" in hyperparameters
    if scaled and isinstance(agent, EpisodicAgent):
        raise ValueError("tables hold returns as the environment pays them: leave --normalise-rewards and --reward-scale out")
    if learning.worst < 1 and (isinstance(agent, EpisodicAgent) or recipe.rule.priority):
        raise ValueError(
            "worst picks the episodes that a policy's gradient is a mean of; rules that learn the value of every action (dqn, "
            "q_learning, mfec, nec) would only learn a wrong mean: leave it out, or train by ppo or another rule"
        )
    normalised = learning.normalise_observations, learning.normalise_rewards
    agent = normalising(agent, environment.observation, learning.streams, *normalised)
    # Outermost: what is normalised is everything that happened.
    agent = learning_from_worst(agent, learning.worst, learning.worst_after)
    return init_learner_state(learner, agent, key_rule, hyperparameters)


def empty_replay(learning: Learning, environment: Environment, agent: Agent, memory: PyTree) -> ring.Replay | tuple[()]:
    """The buffer that a life starts with; `memory` [B, ...] is the agent's, for its shapes.

    Args:
        learning: says whether there is replay, and how much.
        environment: whose observations are stored.
        agent: whose actions and policies are stored; only their shapes matter.
        memory: the agent's, leaves [B, ...]; likewise.
    """
    if not learning.replay:
        return ()
    time, streams = learning.unroll, learning.streams

    def zeros(steps: int, dtype: Any, *shape: int) -> Array:
        return jnp.zeros((steps, streams, *shape), dtype)

    def decide(observation: PyTree, first: Array, key: Array) -> tuple[Array, Policy]:
        policy, _ = agent.act(observation, first, memory)
        return agent.sample(key, policy), policy

    now = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((streams, *leaf.shape), leaf.dtype), environment.observation)
    decided = jax.eval_shape(decide, now, jax.ShapeDtypeStruct((streams,), jnp.int8), jax.random.key(0))
    action, behaviour = jax.tree.map(lambda leaf: zeros(time, leaf.dtype, *leaf.shape[1:]), decided)
    # The dtypes must be those that `rollout.act` makes: `ring.add` casts what differs, so a narrower one would lose data silently.
    example = Experience(
        observation=jax.tree.map(lambda leaf: zeros(time + 1, leaf.dtype, *leaf.shape), environment.observation),
        action=action,
        reward=zeros(time, jnp.float32),
        discount=zeros(time, jnp.float32),
        first=zeros(time + 1, jnp.int8),
        valid=zeros(time, jnp.bool_),
        behaviour=behaviour,
        memory=memory,
    )
    return ring.start(example, learning.capacity, is_prioritised(learning))


class Keys(NamedTuple):
    """The randomness of one iteration, split once, so that no key is used twice."""

    life: Array  # what the next iteration splits
    act: Array
    learn: Array


def split_keys(life: Life) -> Keys:
    """All keys of one iteration."""
    return Keys(*jax.random.split(life.key, 3))


def collect(streams: Streams, unroll: int, life: Life, key: Array) -> tuple[Life, Experience, Metrics]:
    """Act for one unroll in every stream with the agent as it is, then let it write down what it keeps of that.

    Args:
        streams: B streams of the environment.
        unroll: T, steps in each of them.
        life: the agent, and where it stands in its streams.
        key: randomness of actions and environment.

    Returns:
        The life after it, the experience [T, B] to learn from, and metrics [] of what the environment paid.
    """
    state = life.learner_state
    actor, experience, episodes = act(streams, state.params, life.actor, unroll, key)
    agent, learned_from, _ = write(state.params, experience, episodes)
    life = life._replace(learner_state=state._replace(params=agent), actor=actor)
    # From what the environment paid: a bonus that the agent pays itself is no part of what is reported.
    return life, learned_from, episode_metrics(experience, episodes)


def fill_replay(streams: Streams, learning: Learning, life: Life) -> Life:
    """Collect with the agent as it is until replay is warm, so that the next unroll may already be learned from."""

    def one(_: Any, life: Life) -> Life:
        keys = split_keys(life)
        life, fresh, _ = collect(streams, learning.unroll, life, keys.act)
        return store(life, fresh)._replace(key=keys.life)

    times = warm_iterations(learning)
    # A loop of no turns would still have its body compiled.
    return jax.lax.fori_loop(0, times, one, life) if times else life


def store(life: Life, experience: Experience) -> Life:
    """Put fresh experience into the replay buffer, if there is one."""
    # The truth of a tuple, known at trace time: () is no buffer, and a `Replay` is never empty as a tuple.
    return life._replace(replay=ring.add(life.replay, experience)) if life.replay else life


def draw(learning: Learning, life: Life, fresh: Experience, key: Array) -> Experience:
    """The batch [T, N] of the next update: fresh experience [T, B] and replayed one in the configured mix, after burn-in.

    Args:
        learning: sizes of the batch, of replay's share and of burn-in.
        life: the agent and its replay buffer.
        fresh: what was collected last, [T, B, ...].
        key: randomness of what is drawn.
    """
    return draw_places(learning, life, fresh, key).experience


def draw_places(learning: Learning, life: Life, fresh: Experience, key: Array) -> ring.Drawn:
    """As `draw`, and where its trajectories lie in the replay buffer, if that keeps priorities."""
    batch, drawn = batch_size(learning), ring.Drawn(fresh, ())
    # Where every fresh stream is used and nothing is replayed, drawing would only reorder the streams.
    if life.replay or batch != learning.streams:
        powers = learning.replay_priority, learning.replay_correction
        drawn = ring.draw(life.replay or None, fresh, batch, learning.replay, key, powers)
    return drawn._replace(experience=after_burn_in(life.learner_state.params, drawn.experience, learning.burn_in))


def after_burn_in(agent: Agent, experience: Experience, steps: int) -> Experience:
    """The experience after its first `steps` steps, with the memory that the agent as it is now has there (burn-in).

    Replayed experience holds the memory of the agent that acted, which was younger; the more steps the present one has read, the
    less that matters (Kapturowski et al. 2019). Those steps are not learned from, and no gradient reaches them.
    """
    if not steps:
        return experience
    read = jax.tree.map(lambda x: x[:steps], experience._replace(memory=()))
    # One more of these two than of the rest, as in all experience: `remember` leaves the last observation out.
    read = read._replace(observation=jax.tree.map(lambda x: x[: steps + 1], experience.observation))
    read = read._replace(first=experience.first[: steps + 1], memory=experience.memory)
    # The inner gradient starts from the batch and never sees this memory; without the stop, the meta-gradient of discovery would.
    memory = jax.lax.stop_gradient(agent.remember(read))
    return jax.tree.map(lambda x: x[steps:], experience._replace(memory=()))._replace(memory=memory)


class Learned(NamedTuple):
    """What an update leaves behind."""

    learner_state: LearnerState
    metrics: Metrics
    priority: Array | tuple[()]  # () where nothing is prioritised


def sample_and_update(
    learner: Learner, learning: Learning, rule_params: PyTree, life: Life, fresh: Experience, key: Array
) -> Learned:
    """Draw a batch from fresh experience [T, B] and the replay buffer, and make one update from it.

    The buffer is only read: what was collected has been put into it by `store`. It is not returned, so that nothing copies it; only
    the priorities [C] of what it holds are, renewed for the trajectories of the batch.

    Args:
        learner: the rule and how its gradient becomes steps.
        learning: sizes of the batch, of replay's share and of burn-in.
        rule_params: the rule's parameters, {} for a hand-designed rule.
        life: the agent and its replay buffer.
        fresh: what was collected last, [T, B, ...].
        key: randomness of what is drawn and of minibatches.
    """
    key_mix, key_update = jax.random.split(key)
    drawn = draw_places(learning, life, fresh, key_mix)
    learned = checked_update(learner, rule_params, life.learner_state, drawn.experience, key_update)
    priority = life.replay.priority if life.replay else ()
    if not isinstance(priority, tuple) and not isinstance(drawn.places, tuple):
        # A trajectory that was drawn twice gets the same number twice.
        priority = priority.at[drawn.places].set(learned.priority)
    return learned._replace(priority=priority)


def checked_update(learner: Learner, rule_params: PyTree, state: LearnerState, experience: Experience, key: Array) -> Learned:
    """One update from a batch [T, N], and the priorities [N] of its trajectories, if they are wanted.

    The metric `bad_gradients` is 1 where its gradient was not finite.

    Args:
        learner: the rule and how its gradient becomes steps.
        rule_params: the rule's parameters, {} for a hand-designed rule.
        state: the agent before the update.
        experience: the batch, [T, N, ...].
        key: randomness of minibatches.
    """
    made = make_targets(learner, rule_params, state, experience)
    state, metrics = follow_targets(learner, rule_params, state, made, key)
    # A norm is finite only if all elements are, and a mean over minibatches only if all their norms are.
    bad = ~jnp.isfinite(metrics["gradient_norm"])
    priority: Array | tuple[()] = ()
    if learner.prioritised and learner.rule.priority:
        priority = trajectory_priority(learner.rule.priority(made.targets, made.batch), made.experience.valid)
    return Learned(state, metrics | {"bad_gradients": bad.astype(jnp.int32)}, priority)


def episode_metrics(experience: Experience, episode: Episode) -> Metrics:
    """Sums over the episodes [T, B] that ended, so that means over windows of any length can be computed from them."""
    ended = episode.ended
    return {
        "episodes": jnp.sum(ended).astype(jnp.int32),
        "episode_return": jnp.sum(jnp.where(ended, episode.total, 0.0)),
        "episode_length": jnp.sum(jnp.where(ended, episode.length, 0)).astype(jnp.float32),
        "bad_rewards": jnp.sum(~jnp.isfinite(experience.reward)).astype(jnp.int32),
    }
