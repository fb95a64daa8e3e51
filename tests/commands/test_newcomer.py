"""What a newcomer is told: how actions are chosen, what is kept, and what to write instead."""

import pytest

import rulax
from rulax.rules.base import Recipe
from rulax.rules.ppo import ppo
from rulax.settings import Learning, Network

TINY = {"streams": 4, "unroll": 8, "hidden": (8,), "epochs": 1, "minibatches": 1, "steps": 32}
BINS = "actions: 11 bins; --action-distribution gaussian, or the rule's NETWORK, changes that"


def mine():
    return ppo()


@pytest.mark.parametrize(
    ("rule", "more", "said"),
    [
        (mine, {}, True),
        (mine, {"action_distribution": "gaussian"}, False),
        (Recipe(ppo(), Learning(), Network(action_distribution="beta")), {}, False),
        ("ppo", {}, False),
    ],
)
def test_bins_of_ones_own_rule_are_announced(rule, more, said, capsys, monkeypatch):
    monkeypatch.setattr("rulax.commands.train.run.begin", lambda *arguments, **keywords: None)
    rulax.train("pendulum/continuous", rule=rule, **TINY, **more)
    assert (BINS in capsys.readouterr().err) == said


def test_choices_are_not_announced(capsys, monkeypatch):
    monkeypatch.setattr("rulax.commands.train.run.begin", lambda *arguments, **keywords: None)
    rulax.train("catch", rule=mine, **TINY)
    assert "bins" not in capsys.readouterr().err


def test_a_run_without_a_folder_claims_nothing_else():
    def fails(point):
        raise ZeroDivisionError("by zero")

    with pytest.raises(rulax.TrainingStopped, match=r"fails failed .*; nothing was saved, because .*\(out=\.\.\.\)"):
        rulax.train("catch", callback=fails, quiet=True, **TINY)
    with pytest.raises(rulax.UserError, match=r"was not kept in a folder; rulax.train\(..., out='runs/mine'\) keeps it"):
        rulax.load(None)
