"""Agents with hyper-parameters, constants and tasks of their own: one program gives what single runs give, and they can change."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.agents import Carried, PerStream
from rulax.envs.registry import make
from rulax.learning.life import Life, make_learner
from rulax.learning.members import HYPERPARAMETERS, exploit, explore, explore_constants
from rulax.learning.optimisers import make_optimiser
from rulax.learning.train import COMPILE_FAST, CompiledTrainer, TrainerConfig, make_trainer
from rulax.learning.update import LearnerState, update
from rulax.rules.actor_critic import actor_critic
from rulax.rules.base import Recipe
from rulax.rules.tunable import constants_of, parameters_of, tunable
from rulax.settings import Learning, Network
from tests.learning.environments import Counter
from tests.learning.test_train import recipe, same
from tests.learning.test_update import experience, reading_rule
from tests.learning.test_update import make as make_agent

MEMBERS = 8
RATES = np.geomspace(1e-3, 0.1, MEMBERS)
DISCOUNTS = np.linspace(0.5, 0.99, MEMBERS)
TASKS = np.arange(MEMBERS, dtype=np.float32)
# Where a gradient is about zero, Adam with a small epsilon makes of a rounding error a whole step.
SMOOTH = 1e-2
LEARNING = Learning(streams=2, unroll=3, schedule="linear", clip_gradient=0.5, adam_eps=SMOOTH)
STEPS = 10 * LEARNING.streams * LEARNING.unroll
traces = []


class FastTrainer(CompiledTrainer):
    compile_options = COMPILE_FAST


@functools.cache
def tuned(rate: float = 1.0) -> Recipe:
    rule = tunable(actor_critic, "discount", start={"discount": 0.9}, normalise_advantages=False)

    def targets(*inputs):
        traces.append(None)  # run by Python only when a program is traced
        return rule.targets(*inputs)

    learning = dataclasses.replace(LEARNING, learning_rate=rate)
    return Recipe(rule._replace(targets=targets), learning, Network(hidden=(4,), activation="tanh"))


@functools.cache
def population() -> tuple[FastTrainer, object]:
    """Eight agents with their own learning rates, discounts and tasks, and their state before anything happens."""
    trainer = FastTrainer(Counter(), tuned(), TrainerConfig(MEMBERS, STEPS), {"learning_rate": RATES}, TASKS)
    trainer.rule_params = parameters_of({"discount": DISCOUNTS})
    return trainer, trainer.init(jax.random.key(0))


def run(trainer, state):
    """To the end, from a copy: training consumes its state."""
    state = jax.tree.map(jnp.copy, state)
    while not trainer.done(state):
        state, _ = trainer.advance(state)
    return state


def only(state, member: int, plain: bool = False):
    """The state of one agent, as a trainer of one has it."""
    life = jax.tree.map(lambda x: x[member : member + 1], state.life)
    if plain:
        life = life._replace(learner_state=life.learner_state._replace(hyperparameters={}))
    return state._replace(life=life)


def close(ours, wanted):
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(wanted), strict=True)
    assert all(np.abs(a - b).max() <= 1e-5 * max(1, np.abs(b).max()) for a, b in pairs)


def test_eight_agents_in_one_program_are_eight_single_runs():
    trainer, state = population()
    np.testing.assert_array_equal(state.life.actor.task, TASKS)
    together = run(trainer, state)
    weights = np.asarray(together.life.learner_state.params.torso.mlp.layers[0].weight)
    single = FastTrainer(Counter(), tuned(), TrainerConfig(1, STEPS), {"learning_rate": [1.0]}, TASKS[:1])
    for member in range(MEMBERS):
        single.rule_params = parameters_of({"discount": DISCOUNTS[member]})
        alone = run(single, only(state, member))
        close(only(together, member).life.learner_state.params, alone.life.learner_state.params)
        moved = np.abs(weights[member] - state.life.learner_state.params.torso.mlp.layers[0].weight[member]).max()
        assert moved > 0.1 * RATES[member]
        if member in (0, MEMBERS - 1):  # and these are what plain numbers in the settings give
            plain = FastTrainer(Counter(), tuned(RATES[member]), TrainerConfig(1, STEPS))
            plain.rule_params = single.rule_params
            close(run(plain, only(state, member, plain=True)).life.learner_state.params, alone.life.learner_state.params)


def test_agents_are_copied_and_perturbed_during_a_life_without_compiling_again():
    trainer, state = population()
    begun, _ = trainer.advance(jax.tree.map(jnp.copy, state), most=2)
    compiled, number = trainer._compiled, len(traces)
    parents = jnp.array([7, 1, 2, 3, 4, 5, 6, 7])
    copied = np.arange(MEMBERS) == 0

    def go_on(key):
        life = exploit(begun.life, parents)
        own = explore(life.learner_state.hyperparameters, key, copied)
        life = life._replace(learner_state=life.learner_state._replace(hyperparameters=own))
        before = jax.tree.map(np.array, life.learner_state)
        after, _ = trainer.advance(jax.tree.map(jnp.copy, begun._replace(life=life)), most=3)
        return before, after

    try:
        constants = exploit(parameters_of({"discount": DISCOUNTS}), parents)
        trainer.rule_params = explore_constants(constants, jax.random.key(9), copied)
        before, after = go_on(jax.random.key(1))
        same(after, go_on(jax.random.key(1))[1])
    finally:
        trainer.rule_params = parameters_of({"discount": DISCOUNTS})
    jax.tree.map(lambda x: np.testing.assert_array_equal(x[0], x[7]), (before.params, before.optimiser_state))
    factor = before.hyperparameters["learning_rate"] / RATES
    np.testing.assert_allclose(factor[1:], 1, rtol=1e-6)
    assert float(factor[0] * RATES[0] / RATES[7]) in (pytest.approx(0.8), pytest.approx(1.2))
    after_weights = np.asarray(after.life.learner_state.params.torso.mlp.layers[0].weight)
    assert (after_weights[0] != after_weights[7]).any(), "twins go different ways: other keys, other rates"
    assert len(set(map(bytes, np.asarray(jax.random.key_data(after.life.key))))) == MEMBERS
    assert trainer._compiled is compiled
    assert len(traces) == number, "nothing was traced again"


class Kept(eqx.Module):
    weight: jax.Array
    table: Carried
    unfinished: PerStream


def test_what_belongs_to_streams_is_copied_only_together_with_them():
    number, parents = jnp.arange(3), jnp.array([2, 1, 2])
    agent = Kept(10.0 * number, Carried(number), PerStream(jnp.stack([number, -number], 1)))
    state = LearnerState(agent, eqx.filter(agent, False), (), (), number, {"learning_rate": 0.1 * number})
    copied = exploit(state, parents)
    np.testing.assert_array_equal(copied.params.weight, [20, 10, 20])
    np.testing.assert_array_equal(copied.params.table.value, parents)
    np.testing.assert_allclose(copied.hyperparameters["learning_rate"], [0.2, 0.1, 0.2], rtol=1e-6)
    np.testing.assert_array_equal(copied.params.unfinished.value[:, 0], number)
    assert jax.tree.structure(copied) == jax.tree.structure(state)
    life = exploit(Life(state, {"observation": number}, (), jax.random.split(jax.random.key(0), 3)), parents)
    np.testing.assert_array_equal(life.learner_state.params.unfinished.value[:, 0], parents)
    np.testing.assert_array_equal(life.actor["observation"], parents)


def test_exploration_keeps_fractions_between_0_and_1_and_leaves_out_what_is_not_named():
    values = {"slow_decay": jnp.full(64, 0.9), "learning_rate": jnp.full(64, 1e-3), "clip_update": jnp.ones(64)}
    found = explore(values, jax.random.key(0), names=("slow_decay", "learning_rate"))
    np.testing.assert_allclose(np.unique(found["learning_rate"]), [0.8e-3, 1.2e-3], rtol=1e-5)
    odds = np.unique(np.round(found["slow_decay"] / (1 - found["slow_decay"]), 3))
    np.testing.assert_allclose(odds, [7.2, 10.8], rtol=1e-3)  # 9 times 0.8 and 1.2
    np.testing.assert_array_equal(found["clip_update"], 1)
    same_draws = np.asarray(found["learning_rate"] > 1e-3) == np.asarray(found["slow_decay"] > 0.9)
    assert not same_draws.all(), "each name is drawn by itself"
    constants = constants_of(explore_constants(parameters_of({"discount": np.full(64, 0.9)}), jax.random.key(0)))
    np.testing.assert_allclose(np.unique(np.round(constants["discount"] / (1 - constants["discount"]), 3)), [7.2, 10.8], rtol=1e-3)


SETTINGS = {
    "learning_rate": (0.1, 0.02),
    "warmup_updates": (0, 3),
    "clip_gradient": (0.0, 0.3),
    "clip_update": (0.7, 0.0),
    "weight_decay": (0.0, 0.1),
    "adam_b1": (0.9, 0.5),
    "adam_b2": (0.99, 0.9),
    "adam_eps": (1e-8, 1e-2),
    "reward_scale": (1.0, 10.0),
    "slow_decay": (0.9, 0.5),
}


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_own_numbers_of_the_optimiser_act_as_plain_ones_do(schedule):
    """One number, and all together, with horizons of their own where a schedule falls; 0 is no limit."""
    horizons = (5, 12)
    rng = np.random.default_rng(0)
    grads = [{"a": jnp.asarray(rng.normal(size=3), jnp.float32)} for _ in range(8)]
    params = {"a": jnp.asarray(rng.normal(size=3), jnp.float32)}

    def steps(optimiser, **extra):
        state, found = optimiser.init(params), []
        for grad in grads:
            made, state = optimiser.update(grad, state, params, **extra)
            found.append(made["a"])
        return jnp.stack(found)

    plain = Learning(schedule=schedule, learning_rate=0.1)
    for names in (["clip_gradient"], list(SETTINGS)):
        own = {name: jnp.asarray(SETTINGS[name], jnp.float32) for name in names}
        if schedule != "constant":
            own["horizon"] = jnp.asarray(horizons, jnp.float32)
        optimiser = make_optimiser(plain, 99, own)
        found = jax.jit(jax.vmap(lambda own, optimiser=optimiser: steps(optimiser, hyperparameters=own)))(own)
        for member in range(2):
            learning = dataclasses.replace(plain, **{name: SETTINGS[name][member] for name in names})
            wanted = jax.jit(functools.partial(steps, make_optimiser(learning, horizons[member])))()
            np.testing.assert_allclose(found[member], wanted, rtol=1e-4, atol=1e-7, err_msg=str(names))


@pytest.mark.parametrize("passes", [1, 2])
def test_an_update_reads_what_the_agent_has_of_its_own(passes):
    """Two agents in one `vmap`, with own rates, reward scales and slow copies, against two learners with plain numbers."""
    names = ("learning_rate", "reward_scale", "slow_decay")
    own = {name: jnp.asarray(SETTINGS[name]) for name in names}
    _, state = make_agent(reading_rule())
    learner = make_learner(Recipe(reading_rule(), Learning(epochs=passes, adam_eps=SMOOTH), None), own=names)  # type: ignore[arg-type]

    def both(own):
        return update(learner, {}, state._replace(hyperparameters=own), experience(), jax.random.key(0))[0]

    found = jax.jit(jax.vmap(both))(own)
    same(found.hyperparameters, own)
    for member in range(2):
        plain = {name: SETTINGS[name][member] for name in names}
        alone = make_learner(Recipe(reading_rule(), Learning(epochs=passes, adam_eps=SMOOTH, **plain), None))  # type: ignore[arg-type]
        wanted = jax.jit(lambda alone=alone: update(alone, {}, state, experience(), jax.random.key(0))[0])()
        ours = jax.tree.map(lambda x, member=member: x[member], found._replace(hyperparameters={}))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), ours, wanted)


def test_agents_on_the_host_have_their_own_too():
    config = TrainerConfig(seeds=2, total_steps=100)
    trainer = make_trainer(make("CartPole-v1"), recipe(schedule="constant"), config, {"learning_rate": [0.0, 0.1]})
    try:
        state = trainer.init(jax.random.key(0))
        after, _ = trainer.advance(state, most=1)
    finally:
        trainer.close()
    before, after = (np.asarray(each.life.learner_state.params.torso.mlp.layers[0].weight) for each in (state, after))
    np.testing.assert_array_equal(before[0], after[0])
    assert (before[1] != after[1]).any()


@pytest.mark.parametrize(
    ("own", "tasks", "words"),
    [
        ({"unroll": [1, 2]}, None, "'unroll' cannot differ between agents; what can is learning_rate"),
        ({"learning_rate": [0.1]}, None, r"one value for each of 2 agents, but has the shape \[1\]"),
        ({"learning_rate": 0.1}, None, "one value for each of 2 agents"),
        ({"horizon": [1, 2]}, None, "needs a schedule that falls"),
        ({}, np.zeros(3), "tasks for 2 agents must have the shapes"),
        ({}, (np.zeros(2), np.zeros(2)), "tasks for 2 agents must have the shapes"),
    ],
)
def test_what_no_agent_can_have_of_its_own_is_refused_in_one_sentence(own, tasks, words):
    with pytest.raises(ValueError, match=words):
        make_trainer(Counter(), recipe(schedule="constant"), TrainerConfig(seeds=2), own, tasks)


def test_the_names_are_settings():
    fields = {field.name for field in dataclasses.fields(Learning)}
    assert set(HYPERPARAMETERS) - fields == {"horizon"}
    assert set(SETTINGS) == set(HYPERPARAMETERS) - {"horizon"}
