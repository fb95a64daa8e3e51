"""Every hand-designed rule on every probe environment: values, discounting, policies and policies that read their observation.

The five probes are lived side by side: one environment whose task says which probe it is, so each rule is compiled once.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.envs.base import Environment
from rulax.envs.registry import list_environments, make
from rulax.learning.train import TrainerConfig, make_trainer
from rulax.rules.registry import make_rule
from rulax.values.two_hot import SMALL_BINS, expected_value

pytestmark = pytest.mark.learning

PROBES = [make(entry.name) for entry in list_environments() if entry.name.startswith("probe/")]
# Environment steps that each rule needs to have learned all five, with room to spare.
BUDGETS = {
    "policy_gradient": 400_000,
    "actor_critic": 400_000,
    "ppo": 300_000,
    "dpo": 300_000,
    "ppo_targets": 100_000,
    "q_learning": 40_000,
    "dqn": 30_000,
}
SLOW = ("dpo",)  # as PPO, up to its drift
DISCOUNT = 0.5  # far from 1, so that a discount which is forgotten or applied twice is seen


@dataclasses.dataclass(frozen=True)
class AnyProbe(Environment):
    """The probe whose number is the task; where a probe has one action, both actions are that one."""

    num_actions = 2
    observation = PROBES[0].observation

    def default_task(self):
        return jnp.int32(0)

    def sample_task(self, key):
        return jax.random.randint(key, (), 0, len(PROBES))

    def reset(self, task, key):
        return jax.lax.switch(task, [lambda k, p=p: p.reset(p.default_task(), k) for p in PROBES], key)

    def step(self, task, state, action, key):
        one = [
            lambda s, a, k, p=p: p.step(p.default_task(), s, jnp.minimum(a, p.num_actions - 1), k)
            for p in PROBES
        ]  # fmt: skip
        return jax.lax.switch(task, one, state, action, key)


def learn(name):
    recipe = make_rule(name, discount=DISCOUNT)
    recipe = recipe._replace(network=dataclasses.replace(recipe.network, hidden=(32, 32), action_model=32))
    config = TrainerConfig(seeds=len(PROBES), total_steps=BUDGETS[name])
    trainer = make_trainer(AnyProbe(), recipe, config)
    state = trainer.init(jax.random.key(0))
    actor = state.life.actor._replace(task=jnp.arange(len(PROBES)))
    state = state._replace(life=state.life._replace(actor=actor))
    while not trainer.done(state):
        state, _ = trainer.advance(state)
    return trainer, state


def says(agent, observation):
    """Value and policy of an agent at one observation."""
    predictions = agent.predict(agent.heads.begin(agent.torso(jnp.asarray(observation)[None])))
    policy = jax.nn.softmax(predictions["policy"][0])
    value = predictions["value"][0]
    value = value[..., 0] if value.shape[-1] == 1 else expected_value(value, SMALL_BINS)
    return float(value if value.ndim == 0 else value @ policy), np.asarray(policy)


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in BUDGETS])
def test_a_rule_passes_every_probe(name):
    trainer, state = learn(name)
    assert len(PROBES) == 5
    for index, probe in enumerate(PROBES):
        agent = trainer.agent(state, index)
        for expected in probe.expectations(DISCOUNT):
            value, policy = says(agent, expected.observation)
            where = f"{name} on {type(probe).__name__} at {expected.observation}: value {value:.2f}, policy {policy.round(2)}"
            if expected.action is not None:
                assert policy[expected.action] > 0.8, where
            # A policy that still explores earns a little less than the best one.
            assert abs(value - expected.value) < 0.2, where
