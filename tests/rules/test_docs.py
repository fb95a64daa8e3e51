"""The page about rules says what the code does: its tables are the code's own defaults, and its example runs."""

import importlib
import inspect
import re

import pytest

from rulax.rules.registry import RULES, make_rule
from tests.rules.data import B, T, init_params, make_targets, random_batch, taken_predictions
from tests.shared import ROOT

PAGE = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
DESCRIBED = ["policy_gradient", "actor_critic", "ppo", "dpo", "ppo_targets", "q_learning", "dqn", "diayn"]


def options_row(name):
    module, function = RULES[name].where.split(":")
    parameters = inspect.signature(getattr(importlib.import_module(module), function)).parameters.values()
    said = [f"`{p.name}` {tuple(p.default) if isinstance(p.default, tuple) else p.default}" for p in parameters]
    return f"| `{name}` | {', '.join(said)} |"


def settings_row(name):
    recipe = make_rule(name)
    learning, network = recipe.learning, recipe.network
    passes = f"{learning.epochs} × {learning.minibatches}"
    replay = f"{learning.replay:g} of {learning.batch}" if learning.replay else "none"
    rate = f"{learning.learning_rate:g} {learning.schedule}"
    torso = f"{network.hidden} {network.activation}"
    return f"| `{name}` | {learning.streams} × {learning.unroll} | {passes} | {replay} | {rate} | {torso} |"


def test_tables_are_the_defaults():
    for name in DESCRIBED:
        assert options_row(name) in PAGE
        assert settings_row(name) in PAGE
        assert f"### `{name}`" in PAGE


def example(heading):
    """What the first program under a heading defines."""
    code = re.search(rf"## {heading}\n.*?```python\n(.*?)```", PAGE, re.DOTALL).group(1)
    assert len(code.splitlines()) <= 25
    names = {}
    exec(code, names)
    return names


EXAMPLES = {"Write your own": "self_imitation", "A loss that is learned": "learned_surrogate"}


@pytest.mark.parametrize(("heading", "name"), EXAMPLES.items())
def test_the_examples_are_short_and_run(heading, name):
    rule = example(heading)[name]()
    batch = random_batch(rule)
    targets, _, _ = make_targets(rule, batch)
    loss, _ = rule.loss(init_params(rule), taken_predictions(rule, batch), targets, batch.experience)
    assert loss.shape == (T, B)
