"""The analyses that ask a rule: gradients of real agents, and the page's own forward pass beside that of JAX."""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.agents import make_agent
from rulax.evaluation.explain.alignment import advantages, align, cosine
from rulax.evaluation.explain.inputs import answer, put_together, signals_of, take_apart
from rulax.evaluation.explain.knowledge import prediction_logits, probes_of
from rulax.evaluation.explain.record import Observed, Snapshot, number_episodes
from rulax.evaluation.explain.reliance import Y, Z, without_predictions
from rulax.evaluation.explain.trajectory import part_of, pick, scene, weights
from rulax.metanet.sizes import Constants, Sizes
from rulax.rules.base import UpdateRule, no_params, no_state
from rulax.rules.disco import disco
from rulax.rules.ppo_targets import ppo_targets
from rulax.settings import Network
from rulax.types import Head
from rulax.values.policies import log_probability
from rulax.values.two_hot import Bins, expected_value
from tests.metanet.environments import SMALL, random_batch

ASSETS = Path(__file__).parents[3] / "rulax" / "report" / "assets"


def no_value(predictions):
    return jnp.zeros(predictions["policy"].shape[:-1])


def policy_gradient_times(sign: float) -> UpdateRule:
    def targets(params, state, batch):
        return {"weight": sign * advantages(no_value, batch)}, state, {}

    def loss(rule_params, taken, targets, experience):
        return -targets["weight"] * log_probability(taken["policy"], experience.action), {}

    return UpdateRule(lambda actions: {"policy": Head(actions)}, no_params, no_state, targets, loss)


def test_the_policy_gradient_is_at_no_angle_to_itself() -> None:
    experience = random_batch().experience
    observation = jax.random.normal(jax.random.key(0), (*experience.first.shape, 3))
    experience = experience._replace(observation=observation)
    shape = jax.ShapeDtypeStruct((3,), jnp.float32)
    agent = make_agent(jax.random.key(1), shape, 4, {"policy": Head(4)}, Network(hidden=(8,)))
    for sign in (1.0, -2.0):
        rule = policy_gradient_times(sign)
        found = jax.jit(lambda agent, seen, rule=rule: align(rule, {}, {}, agent, agent, seen, no_value))(agent, experience)
        assert float(found["whole"]) == pytest.approx(np.sign(sign), abs=1e-5)
        assert float(found["policy"]) == pytest.approx(np.sign(sign), abs=1e-5)
        assert abs(float(found["again"])) < 0.999  # other data, other gradient


def test_predictions_are_those_that_the_rule_has() -> None:
    """LPG has y without z; a rule of people has neither."""
    batch = jax.tree.map(np.asarray, random_batch(SMALL))
    for names in [("state_prediction", "action_prediction"), ("state_prediction",), ()]:
        kept = {name: batch.online[name] for name in ("policy", *names)}
        found = prediction_logits(Observed(batch._replace(online=kept), np.zeros(()), np.zeros(()), None))
        assert list(found) == [*["y", "z"][: len(names)], "policy"]
        assert {each.shape[:2] for each in found.values()} == {batch.experience.action.shape}


def test_an_observation_of_several_parts_is_probed_as_one() -> None:
    batch = jax.tree.map(lambda x: np.concatenate([x] * 12, 1), random_batch(SMALL))  # enough episodes to probe
    seen = np.random.default_rng(0).normal(size=(*batch.experience.first.shape, 6))
    value, episodes = np.zeros(batch.experience.first.shape), number_episodes(batch.experience.first)

    def probed(observation):
        experience = batch.experience._replace(observation=observation)
        return probes_of(Observed(batch._replace(experience=experience), value, episodes, None))

    whole, parts = probed(seen), probed({"a": seen[..., :2], "b": seen[..., 2:].reshape(*seen.shape[:2], 2, 2)})
    assert np.isfinite(whole["reward"]["observation"][0]["value"])
    jax.tree.map(np.testing.assert_array_equal, parts, whole)


def test_cosine() -> None:
    assert float(
        cosine({"a": jnp.array([1.0, 0.0]), "b": jnp.array([2.0])}, {"a": jnp.array([1.0, 2.0]), "b": jnp.array([0.0])})
    ) == pytest.approx(1 / 5)
    assert float(cosine(jnp.zeros(3), jnp.ones(3))) == 0


# All on and all off; each by itself takes another few seconds to compile.
SWITCHES = [
    {},
    {"bootstrap": False, "lifetime": False, "value": False, "predictions": False},
    *(
        pytest.param({name: False}, marks=pytest.mark.slow)
        for name in ("predictions", "bootstrap", "lifetime", "value", "next_policy")
    ),
]


class Case(NamedTuple):
    sizes: Sizes
    rule: UpdateRule
    network: Any
    state: Any
    batch: Any
    targets: Any  # compiled


@functools.cache
def case(**switches: bool) -> Case:
    """A small rule without some of its parts, in the middle of a life: with a fresh memory the gate may let nothing through.

    Its numbers are numpy's, and all trajectories have the shape of the page's: compiling is what takes time here.
    """
    sizes, rng = dataclasses.replace(SMALL, **switches), np.random.default_rng(3)
    rule, batch = disco(sizes), jax.tree.map(np.asarray, random_batch(sizes))
    network, state = jax.eval_shape(lambda: (rule.init(jax.random.key(0)), rule.start(jax.random.key(0))))
    network = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32) / max(1, x.shape[0]) ** 0.5, network)
    lifetime = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), state.lifetime)
    scales = jax.tree.map(lambda x: np.full(x.shape, 0.3, np.float32), state.scales)
    return Case(
        sizes,
        rule,
        network,
        state._replace(lifetime=lifetime, scales=scales),
        batch,
        jax.jit(lambda *given: rule.targets(*given)[0]),
    )


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
def test_inputs_taken_apart_and_put_together_are_the_same(switches: dict) -> None:
    sizes, _, network, state, batch, targets = case(**switches)
    batch = part_of(batch, 0, 0)
    signals = signals_of(sizes, Constants())(state.scales, batch)
    parts = take_apart(signals)
    back = put_together(signals, parts)
    jax.tree.map(np.testing.assert_array_equal, back, signals)
    found = jax.jit(answer(sizes.bootstrap))((network, state.lifetime, signals), parts)
    np.testing.assert_allclose(found["policy"], targets(network, state, batch)["policy"], rtol=1e-5, atol=1e-6)


def test_every_input_that_a_rule_can_have_is_in_one_group() -> None:
    """Each column is planted with a number of its own, and each number is found once."""
    signals = signals_of(SMALL, Constants())(case().state.scales, part_of(case().batch, 0, 0))
    marked = signals._replace(
        scalars=jnp.arange(9.0),
        channels_before=10 + jnp.arange(3.0),
        channels_after=20 + jnp.arange(4.0),
        probabilities=-jnp.ones(1),
    )
    parts = take_apart(marked)
    parts = {name: part for name, part in parts.items() if name not in ("y", "z", "slow y", "slow z")}
    found = {name: [float(x) for leaf in jax.tree.leaves(part) for x in leaf] for name, part in parts.items()}
    assert found == {
        "policy": [0, 10, -1],
        "acting policy": [1, 11],
        "slow policy": [8, 12],
        "reward": [2],
        "episode goes on": [3],
        "action taken": [23],
        "value": [4, 5],
        "advantage": [6, 7],
        "q of each action": [20, 21, 22],
    }


def test_rules_without_predictions() -> None:
    _, rule, network, state, batch, targets = case()
    batch, other = part_of(batch, 0, 0), part_of(batch, 0, 1)
    whole = targets(network, state, batch)
    blind = without_predictions(rule, True)
    ask = jax.jit(lambda batch: blind.targets(network, state, batch)[0])
    own, everywhere = jax.jit(lambda: without_predictions(rule, False).targets(network, state, batch)[0])(), ask(batch)
    np.testing.assert_allclose(own["policy"], whole["policy"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(own[Y], everywhere[Y], rtol=1e-5, atol=1e-6)
    for name in ("policy", Y, Z):
        assert np.abs(everywhere[name] - whole[name]).max() > 1e-4
    changed = batch._replace(online={**batch.online, Y: other.online[Y], Z: other.online[Z]})
    np.testing.assert_array_equal(ask(changed)["policy"], everywhere["policy"])


# -- the page's own forward pass -----------------------------------------------------------------------------------------------

SCRIPT = """
const fs = require('fs');
const data = JSON.parse(fs.readFileSync(0));
const run = new Function('data', fs.readFileSync(process.argv[1], 'utf8') + `
  const rule = {...data.weights, arrays: Object.fromEntries(Object.entries(data.weights.arrays).map(([k, v]) => [k, unpack(v)]))};
  const scene = {...data.scene, gate: unpack(data.scene.gate)};
  const own = discovered(rule, scene), people = writtenByPeople(scene, data.value);
  return {policy: own.policy, y: own.y.map((r) => Array.from(r)), z: own.z.map((r) => Array.from(r)), ...people};
`);
console.log(JSON.stringify(run(data)));
"""


def in_node(given: dict) -> dict:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node to run the page's script in")
    text = json.dumps(given, default=lambda x: np.asarray(x).tolist())
    done = subprocess.run(
        [node, "-e", SCRIPT, str(ASSETS / "forward.js")], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
def test_the_page_computes_what_jax_computes(switches: dict) -> None:
    sizes, _, network, state, batch, targets_of = case(**switches)
    observed = Observed(
        batch, np.random.default_rng(0).normal(size=batch.experience.first.shape), number_episodes(batch.experience.first), 0.0
    )
    snapshot = Snapshot(0, (), (), state)
    start, stream = pick(observed)
    shown = part_of(batch, start, stream)
    given = {"weights": weights(network, sizes, Constants()), "scene": scene("x", snapshot, observed, (network, sizes))}
    given["value"] = given["scene"]["value"]
    found = in_node(given)
    targets = targets_of(network, state, shown)
    np.testing.assert_allclose(found["policy"], targets["policy"][:, 0], rtol=2e-4, atol=2e-5)
    if sizes.predictions:
        np.testing.assert_allclose(found["y"], targets[Y][:, 0], rtol=2e-4, atol=2e-5)
        np.testing.assert_allclose(found["z"], targets[Z][:, 0], rtol=2e-4, atol=2e-5)


def test_the_page_computes_the_rules_of_people() -> None:
    """Beside the rules themselves, with values that are written as their heads write them."""
    network, state, batch = case().network, case().state, case().batch
    theirs = ppo_targets(bins=Bins(SMALL.bins, SMALL.largest_value))
    policy = jax.nn.softmax(batch.online["policy"])
    value = jnp.sum(policy * expected_value(batch.online["value"], Bins(SMALL.bins, SMALL.largest_value)), -1)
    observed = Observed(batch, np.asarray(value), number_episodes(batch.experience.first), 0.0)
    start, stream = pick(observed)
    shown = part_of(batch, start, stream)
    made = scene("x", Snapshot(0, (), (), state), observed, (network, SMALL))
    found = in_node({"weights": weights(network, SMALL, Constants()), "scene": made, "value": made["value"]})
    own_value = jnp.asarray(made["value"])[:, None]
    plain = advantages(lambda predictions: own_value, shown)[:, 0]
    np.testing.assert_allclose(found["advantage"], plain, rtol=1e-4, atol=1e-5)
    # PPO standardises over its batch, here the whole recording: what the rule itself does with that tells by how much.
    targets, everywhere = theirs.targets({}, {}, batch)[0], advantages(lambda predictions: value, batch)
    taken = np.asarray(batch.experience.action)[..., None]
    logs = np.asarray(jax.nn.log_softmax(batch.online["policy"]))[:-1]
    push = np.take_along_axis(np.asarray(targets["policy"]) - (1 - 0.001) * logs, taken, -1)[..., 0]
    inside = np.asarray(batch.experience.valid, bool) & (np.abs(push) < 1.9)  # not clipped
    slope, level = np.polyfit(np.asarray(everywhere)[inside], push[inside], 1)
    wanted = np.clip(slope * np.asarray(plain) + level, -2, 2)
    logits = np.log(np.asarray(made["policy"]))[:-1]
    taken = np.asarray(shown.experience.action)[:, :1]
    moved = np.take_along_axis(np.asarray(found["ppo"]) - (1 - 0.001) * logits, taken, -1)[:, 0]
    np.testing.assert_allclose(moved, wanted, rtol=1e-3, atol=1e-3)
    logits = jnp.log(jnp.asarray(made["policy"]))[:-1]
    slopes = jax.grad(lambda x: jnp.sum(-plain * log_probability(x, shown.experience.action[:, 0])))(logits)
    np.testing.assert_allclose(found["actorCritic"], logits - slopes, rtol=1e-4, atol=1e-5)
