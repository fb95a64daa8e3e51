"""POET: its control flow against a simulation in plain loops, and its evolution against the estimator and a known optimum."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.discovery.estimators import Problem, evolution
from rulax.envs import make
from rulax.envs.catch import Catch
from rulax.envs.hurdles import Hurdles
from rulax.envs.tasks import finite_set, mutable, mutation_of
from rulax.errors import UserError
from rulax.learning.train import COMPILE_FAST
from rulax.methods.poet import Poet, Trailblazer, best_candidates, novelty, rows, stacked
from rulax.methods.poet_agents import Evolved, EvolvedAgents, Evolving, TrainedAgents, horizon_of
from rulax.rules.base import Recipe
from rulax.rules.ppo import LEARNING, NETWORK, ppo
from rulax.rules.registry import make_rule

from ..learning.environments import Flicker


class Skill(NamedTuple):
    """An agent that is a point, and how often its optimiser has stepped."""

    point: jax.Array  # [2]
    age: jax.Array  # []


class Plane:
    """Tasks and agents are points in the plane: 300 less 100 times the distance; a step of learning goes a tenth of the way."""

    environment = mutable(make("point"), lambda task, key: task._replace(goal=task.goal + 0.3 * jax.random.normal(key, (2,))))

    def fresh(self, key):
        return Skill(jnp.zeros(2), jnp.zeros((), jnp.int32))

    def improve(self, members, tasks, key, iterations):
        for _ in range(iterations):
            members = Skill(members.point + 0.1 * (tasks.goal - members.point), members.age + 1)
        return members

    def transplant(self, sources, targets):
        return targets._replace(point=sources.point)

    def score(self, members, tasks, keys):
        return 300 - 100 * np.linalg.norm(np.asarray(members.point) - np.asarray(tasks.goal), axis=-1)


SMALL = Poet(capacity=4, transfer_every=2, reproduce_every=4, lowest=100, highest=299, parents_from=250, solved=295, children=6)


def run(poet: Poet, turns: int, seed: int = 0) -> Trailblazer:
    trail = Trailblazer(Plane(), poet, jax.random.key(seed))
    for _ in range(turns):
        trail.advance()
    return trail


@pytest.fixture(scope="module")
def trail():
    return run(SMALL, 16)


# -- transfer --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_the_best_candidate_is_that_of_a_plain_search(seed):
    generator = np.random.default_rng(seed)
    direct, tuned = generator.integers(0, 6, (2, 5, 5)).astype(float)  # small numbers, so that some are equal
    active = np.flatnonzero(generator.random(5) < 0.7)
    found = best_candidates(direct, tuned, active)
    for target in active:
        others = [source for source in active if source != target]
        if not others:
            assert target not in found
            continue
        scores = [scores[source, target] for scores in (direct, tuned) for source in others]
        assert found[target].score == max(scores)
        assert found[target].source in others
        assert (tuned if found[target].tuned else direct)[found[target].source, target] == max(scores)


def test_transfers_replace_agents_by_better_ones_and_renew_their_optimisers():
    trail = run(SMALL, 7)
    assert len(trail.active) > 1
    # Whoever stands on an empty place is an agent too, and the best there could be: nobody may take it.
    empty = [place for place in range(4) if trail.places[place] is None]
    generator = np.random.default_rng(1)
    points = generator.normal(size=(4, 2)).astype(np.float32)
    goals = np.asarray(trail.tasks.goal)
    trail.members = Skill(jnp.asarray(points), jnp.arange(4) + 5)
    # One pair remembers a score that nobody reaches, the others none.
    proud = int(trail.active[0])
    for place in trail.active:
        trail._world(place).recent = [301.0] if place == proud else []
    before, already = points.copy(), len(trail.transfers)
    trail.transfer()
    score = lambda point, target: 300 - 100 * np.linalg.norm(point - goals[target])  # noqa: E731
    for target in trail.active:
        # By hand: all others as they are and after a tenth of the way to this goal, which always helps; both must be better.
        nearest = max((before[source] for source in trail.active if source != target), key=lambda point: score(point, target))
        best = nearest + 0.1 * (goals[target] - nearest)
        taken = score(nearest, target) > score(before[target], target) and target != proud
        np.testing.assert_allclose(trail.members.point[target], best if taken else before[target], atol=1e-5)
        assert int(trail.members.age[target]) == (0 if taken else target + 5)
        assert trail.scores[target] == pytest.approx(score(np.asarray(trail.members.point[target]), target), abs=1e-2)
    assert len(trail.transfers) - already == len(trail.active)
    for place in empty:
        np.testing.assert_array_equal(trail.members.point[place], before[place])


# -- reproduction ----------------------------------------------------------------------------------------------------------------


def test_novelty_is_the_mean_distance_to_the_nearest():
    generator = np.random.default_rng(0)
    archive, point = generator.normal(size=(9, 3)), generator.normal(size=3)
    distances = sorted(float(np.sqrt(sum((a - b) ** 2 for a, b in zip(point, each, strict=True)))) for each in archive)
    assert novelty(point, archive, 4) == pytest.approx(sum(distances[:4]) / 4)
    assert novelty(point, archive[:2], 4) == pytest.approx(np.linalg.norm(archive[:2] - point, axis=-1).mean())


@pytest.mark.parametrize("transfers", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_who_is_admitted_is_whom_a_plain_search_admits(transfers, seed):
    trail = run(dataclasses.replace(SMALL, admitted=2, transfers=transfers), 2, seed)
    # Agents at distances where some children are too hard for their parent and some too easy for another agent.
    trail.members = trail.members._replace(point=trail.members.point + 0.3 * jax.random.normal(jax.random.key(seed), (4, 2)))
    goals, places = np.asarray(trail.tasks.goal), list(trail.active)
    points = np.asarray(trail.members.point)
    trail.scores = np.full(4, 260.0)
    offered = []
    mutate = trail.mutate
    trail.mutate = lambda tasks, keys: offered.append((np.asarray(tasks.goal), mutate(tasks, keys))) or offered[-1][1]
    archive = np.array([world.task.goal for world in trail.worlds])
    trail.reproduce()
    (parent_goals, children), old = offered[0], len(archive)
    score = lambda point, goal: 300 - 100 * np.linalg.norm(point - goal)  # noqa: E731
    meets = lambda value: 100 <= value <= 299  # noqa: E731
    kept = []
    for goal, parent_goal in zip(np.asarray(children.goal), parent_goals, strict=True):
        parent = next(place for place in places if np.array_equal(goals[place], parent_goal))
        distances = sorted(np.linalg.norm(archive - goal, axis=-1))[:5]
        if meets(score(points[parent], goal)):
            kept.append((np.mean(distances), goal, points[parent]))
    expected = []
    for _, goal, parent in sorted(kept, key=lambda each: -each[0]):
        # Who has joined in this round is one of those who try the next mutant.
        candidates = [points[place] for place in places] + [best for _, best in expected]
        candidates += [point + 0.1 * (goal - point) for point in list(candidates)]
        best = max(candidates, key=lambda point: score(point, goal)) if transfers else parent
        if meets(score(best, goal)) and len(expected) < 2:
            expected.append((goal, best))
    born = trail.worlds[old:]
    assert len(born) == len(expected)
    for world, (goal, best) in zip(born, expected, strict=True):
        np.testing.assert_array_equal(world.task.goal, goal)
        np.testing.assert_allclose(trail.members.point[world.place], best, atol=1e-5)
        assert int(trail.members.age[world.place]) == 0


def test_the_oldest_makes_room(trail):
    assert len(trail.worlds) > SMALL.capacity  # else nothing was tested
    assert len(trail.active) == SMALL.capacity
    retired = [world for world in trail.worlds if world.retired is not None]
    # One joins at a time, so those who left are the first who came, in their order.
    assert [world.number for world in retired] == list(range(len(trail.worlds) - SMALL.capacity))
    for world in trail.worlds[len(retired) :]:
        assert trail.places[world.place] is world
        np.testing.assert_array_equal(trail.tasks.goal[world.place], world.task.goal)


def test_what_is_remembered_of_a_world_is_its_best_agent(trail):
    for world in trail.worlds:
        if world.agent is not None:
            assert world.best == pytest.approx(300 - 100 * np.linalg.norm(world.agent.point - world.task.goal), abs=1e-2)
        assert (world.solved is not None) == (world.best >= SMALL.solved)
    assert 0 < trail.annecs <= sum(world.solved is not None for world in trail.worlds)


def test_what_an_agent_of_the_past_can_do_is_not_new():
    trail = run(SMALL, 16)
    past = next(world for world in trail.worlds if world.retired is not None)
    goal = np.asarray(past.agent.point)
    assert not trail._is_fresh(past.task._replace(goal=goal), jax.random.key(0))
    assert trail._is_fresh(past.task._replace(goal=goal + 50), jax.random.key(0))


def test_without_transfers_agents_stay_where_they_are():
    trail = run(dataclasses.replace(SMALL, transfers=False), 12)
    assert len(trail.worlds) > 2
    assert trail.transfers == []
    # Every child began with its parent's agent.
    assert all(world.origin == world.parent for world in trail.worlds[1:])


def test_without_inheritance_every_child_begins_anew():
    trail = run(dataclasses.replace(SMALL, transfers=False, inherits=False), 2)
    trail.scores[0] = 260.0
    trail.members = trail.members._replace(point=trail.members.point + 0.1)
    trail.reproduce()
    child = trail.worlds[1]
    np.testing.assert_array_equal(trail.members.point[child.place], np.zeros(2))
    assert child.origin == child.number


def test_many_proposals_go_in_groups_and_change_nothing(trail):
    """Plane's steps draw nothing, so that groups of 5 of the 16 proposals say what all of them at once do."""
    grouped = run(dataclasses.replace(SMALL, at_once=5), 16)
    np.testing.assert_allclose(grouped.members.point, trail.members.point, rtol=1e-6)
    assert [move[:4] for move in grouped.transfers] == [move[:4] for move in trail.transfers]


def test_proposals_of_different_groups_draw_different_numbers():
    seen = []

    class Noisy(Plane):
        def improve(self, members, tasks, key, iterations):
            seen.append(jax.random.key_data(key).tolist())
            return members

    trail = Trailblazer(Noisy(), dataclasses.replace(SMALL, at_once=6), jax.random.key(0))
    trail._tuned(np.arange(16) // 4, trail.tasks, np.arange(16) % 4, trail.members)
    assert len(seen) == len({tuple(key) for key in seen}) == 3


def test_a_key_determines_everything(trail):
    again = run(SMALL, 16)
    np.testing.assert_array_equal(again.members.point, trail.members.point)
    assert again.transfers == trail.transfers
    assert [world.born for world in again.worlds] == [world.born for world in trail.worlds]
    other = run(SMALL, 16, seed=1)
    assert [world.born for world in other.worlds] != [world.born for world in trail.worlds] or not np.array_equal(
        other.members.point, trail.members.point
    )


# -- agents ----------------------------------------------------------------------------------------------------------------------


class Bowl(EvolvedAgents):
    """A return that is known: minus the squared distance of an agent's weights from those of the task."""

    def fresh(self, key):
        agent = jax.random.normal(key, (3,))
        return Evolved(agent, self.adam.init(agent), jnp.zeros((), jnp.int32))

    def episode(self, agent, task, key):
        return -jnp.sum((agent - task) ** 2)


def test_a_step_is_that_of_the_estimator():
    agents = Bowl(make("hurdles"), Evolving(pairs=5, weight_decay=0.0))
    member, task = agents.fresh(jax.random.key(0)), jnp.arange(3.0)
    key = jax.random.key(1)
    stepped = agents.step(member, task, key)
    key_noise, _ = jax.random.split(key)
    problem = Problem(
        enter=lambda params, member: (params, member),
        live=lambda updates, params, member: (member, params, {}),
        updates=None,
        fitness=lambda member, window, metrics: agents.episode(window, task, None),
        split_key=lambda member: (member, key_noise),
    )
    grads, _, _ = evolution(problem, member.agent, (), pairs=5, noise=0.1)
    np.testing.assert_allclose(stepped.moments.mu, 0.1 * grads, rtol=1e-5)  # Adam's first moment starts at 0 and has b1 = 0.9
    # Adam's first step has the size of its rate in every dimension.
    np.testing.assert_allclose(stepped.agent, member.agent - 0.01 * jnp.sign(grads), atol=1e-5)


def test_evolution_finds_the_optimum_of_every_member():
    agents = Bowl(make("hurdles"), Evolving(pairs=8, weight_decay=0.0))
    tasks = jnp.array([[1.0, 2.0, 3.0], [-1.0, 0.0, 0.5]])
    members = jax.vmap(agents.fresh)(jax.random.split(jax.random.key(0), 2))
    members = agents.improve(members, tasks, jax.random.key(1), 1500)
    np.testing.assert_allclose(members.agent, tasks, atol=0.1)
    assert members.age.tolist() == [1500, 1500]


def test_noise_and_rate_fall_from_the_first_to_the_least():
    agents = Bowl(make("hurdles"), Evolving(pairs=2, rate=(0.5, 0.125, 0.5), weight_decay=0.0))
    member = agents.fresh(jax.random.key(0))
    step = lambda age: agents.step(member._replace(age=jnp.int32(age)), jnp.zeros(3), jax.random.key(1)).agent  # noqa: E731
    sizes = [float(jnp.abs(step(age) - member.agent).max()) for age in (0, 1, 2, 9)]
    np.testing.assert_allclose(sizes, [0.5, 0.25, 0.125, 0.125], rtol=1e-4)


@pytest.fixture(scope="module")
def by_ppo():
    learning = dataclasses.replace(LEARNING, streams=4, unroll=8, minibatches=1)
    recipe = Recipe(ppo(), learning, dataclasses.replace(NETWORK, hidden=(8,)))
    return TrainedAgents(make("hurdles", limit=20), recipe, rollouts=2, compile_options=COMPILE_FAST)


def test_ppo_trains_agents_on_their_own_tasks(by_ppo):
    trail = Trailblazer(
        by_ppo, Poet(capacity=2, transfer_every=1, reproduce_every=1, lowest=-99, parents_from=-99), jax.random.key(0)
    )
    for _ in range(3):
        trail.advance()
    assert len(trail.worlds) == 2 + (trail.places[0] is not trail.worlds[0])
    assert trail.transfers
    assert np.isfinite(trail.scores).all()
    tasks = jax.tree.map(np.asarray, trail.tasks)
    members = by_ppo.improve(trail.members, tasks, jax.random.key(5), 2)
    # Each as it would be alone: no member sees another's task.
    alone = by_ppo.improve(trail.members, jnp.stack([tasks[0], tasks[0] + 0.5]), jax.random.key(5), 2)
    first, other = (jax.tree.leaves(rows(tree.params, 0)) for tree in (members, alone))
    assert all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))
    assert int(members.updates[0]) == int(trail.members.updates[0]) + 2


def test_transplanted_agents_learn_with_the_optimisers_of_others(by_ppo):
    one, two = (by_ppo.fresh(jax.random.key(seed)) for seed in (0, 1))
    tasks = jnp.zeros((2, 7))
    learned = rows(by_ppo.improve(stacked([one, one]), tasks, jax.random.key(2), 1), 0)
    moved = by_ppo.transplant(two, learned)
    jax.tree.map(np.testing.assert_array_equal, moved.params, two.params)
    jax.tree.map(np.testing.assert_array_equal, moved.optimiser_state, learned.optimiser_state)


# -- what cannot be --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"capacity": 0}, "POET's capacity must be at least 1, not 0"),
        ({"inherits": False}, "POET without inheritance needs to be without transfers too"),
        ({"children": -1}, "POET's children must be at least 1, not -1"),
        ({"capacity": 2.5}, "POET's capacity must be a whole number, not 2.5"),
        ({"capacity": "a"}, "POET's capacity must be a whole number, not 'a'"),
        ({"solved": "a"}, "POET's solved is a return, a number, not 'a'"),
        ({"transfer_every": 20}, "reproduce_every must be a multiple of transfer_every, 20, not 50"),
        ({"lowest": 300.0}, "the minimal criterion needs lowest < highest, not 300 and 270"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        Poet(**settings)


def test_evolution_needs_perturbations_and_episodes():
    with pytest.raises(ValueError, match="evolution needs pairs of at least 1, not 0"):
        Evolving(pairs=0)


@pytest.mark.parametrize("environment", [make("catch"), finite_set(make("hurdles"), 3)])
def test_an_environment_must_be_able_to_mutate(environment):
    agents = Plane()
    agents.environment = environment
    with pytest.raises(UserError, match=r"(Catch|Hurdles) cannot mutate its tasks: give it a method mutate\(task, key\)"):
        Trailblazer(agents, Poet(), jax.random.key(0))


def test_a_mutation_from_outside_comes_first():
    twice = lambda task, key: 2 * task  # noqa: E731
    assert mutation_of(mutable(make("hurdles"), twice)) is twice
    assert mutation_of(mutable(Catch(), twice)) is twice


@pytest.mark.parametrize(
    ("make_agents", "sentence"),
    [
        # What is wrong altogether comes before what one option mends.
        (lambda: EvolvedAgents(make("catch"), Evolving()), "Catch cannot mutate its tasks: give it a method mutate"),
        (lambda: EvolvedAgents("hurdles", Evolving()), "that runs inside of JAX, as in make.'hurdles'., not 'hurdles'"),
        (lambda: EvolvedAgents(Flicker(), Evolving()), "Flicker steps on the host, .* there is HostEvolvedAgents"),
        (lambda: EvolvedAgents(make("hurdles", bins=5), Evolving()), "act by real numbers, and in Hurdles an action is a choice"),
        (lambda: TrainedAgents(make("hurdles"), make_rule("dqn")), "what they replay would be of the one before"),
        (lambda: TrainedAgents(make("hurdles"), make_rule("mfec")), "does not suit Hurdles: mfec keeps a table per action"),
        (lambda: EvolvedAgents(Hurdles(), Evolving()), "time limit"),
    ],
)
def test_agents_that_cannot_learn_there_are_refused_in_one_sentence(make_agents, sentence):
    with pytest.raises(UserError, match=sentence):
        make_agents()


def test_episodes_need_a_time_limit():
    with pytest.raises(UserError, match="time limit"):
        horizon_of(Catch())
    assert horizon_of(make("hurdles")) == 200


def test_perturbations_of_a_pair_meet_the_same_episode_and_pairs_another():
    class Lucky(Bowl):
        def episode(self, agent, task, key):
            return 1e3 * jax.random.normal(key) + jnp.sum(agent)

    agents = Lucky(make("hurdles"), Evolving(pairs=4, weight_decay=0.0))
    seen = []
    agents.learned = lambda member, directions, fitness: seen.append(fitness) or member
    agents.step(agents.fresh(jax.random.key(0)), jnp.zeros(3), jax.random.key(1))
    plus, minus = np.asarray(seen[0]).reshape(2, 4)
    np.testing.assert_allclose(plus, minus, atol=5)
    assert np.diff(np.sort(plus)).min() > 1
