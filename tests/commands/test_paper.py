"""The paper's protocol in our presets: that their numbers are the paper's, that they hang together, and how `--scale` shrinks them.

Oh et al., Nature 648 (2025): Methods, "Hyperparameters", and Extended Data Table 6. Steps are frames there; ours are decisions.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import jax
import pytest

import rulax
from rulax.commands.cli import main
from rulax.commands.discover.settings import DiscoverConfig, build_discover
from rulax.commands.discover.setup import fixed_part, saved_discovery, sizes_of
from rulax.commands.preset_files import preset_names
from rulax.commands.settings import override
from rulax.commands.train.settings import TrainConfig, build_train
from rulax.discovery.evaluate import Baselines
from rulax.discovery.settings import Discovery
from rulax.envs.suites import SUITES
from rulax.metanet.sizes import Sizes
from rulax.records.rows import read_rows
from rulax.rules.disco import LEARNING, NETWORK
from rulax.rules.pretrained import load_rule
from rulax.settings import Learning
from tests.commands.bad_lines import refused_in_one_sentence
from tests.commands.fake_discovery import FakeEvaluation, install
from tests.shared import ROOT


class Published(NamedTuple):
    """A column of Extended Data Table 6."""

    frames: float
    skip: int  # frames of a decision: 4 in Atari and DMLab (Mnih et al. 2015, Espeholt et al. 2018), 1 elsewhere
    batch: int
    replay: float  # the replay ratio
    unroll: int
    held: float  # the replay buffer's steps
    warmup: float  # of the step size, in frames
    step_size: float
    decay: float
    clip: float


# Of Crafter the paper reports scores at 1 and at 20 million steps; its step size is constant, so the table's 50 only end a run.
PUBLISHED = {
    "atari": Published(200e6, 4, 96, 0.95, 29, 1.76e6, 5e6, 3e-4, 0.1, 1),
    "crafter": Published(20e6, 1, 24, 0.99, 29, 400e3, 0, 3e-4, 0.3, 1),
    "dmlab": Published(1e9, 4, 96, 0.9, 100, 220e3, 1e6, 5e-4, 0.01, 1),
    "nethack": Published(200e6, 1, 96, 0.95, 29, 1.76e6, 10e6, 1e-4, 0.03, 0.3),
    "procgen": Published(200e6, 1, 192, 0.9, 29, 880e3, 1e6, 3e-4, 0.1, 1),
    "sokoban": Published(200e6, 1, 96, 0.9, 29, 880e3, 0, 3e-4, 0.1, 1),
}
BUDGETS, SKIP = (200e6, 100e6, 50e6, 20e6), 4  # of lifetimes in discovery, in frames of Atari


def trained(name: str) -> tuple[TrainConfig, Learning]:
    config = build_train({"preset": f"paper-{name}", "env": "catch"})
    return config, override(LEARNING, config.overrides)


def discovered(**given: Any) -> tuple[DiscoverConfig, Discovery, Learning]:
    config = build_discover({"suite": "paper"} | given)
    return config, override(Discovery(), config.overrides), override(LEARNING, config.overrides)


def fresh_trajectories(learning: Learning) -> int:
    """Those of a batch that are not drawn from replay, which are rounded to whole ones as `life.draw` does."""
    return learning.batch - round(learning.batch * learning.replay)


# -- the presets -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_preset_has_the_numbers_of_its_column(name: str) -> None:
    (config, learning), paper = trained(name), PUBLISHED[name]
    assert config.steps == paper.frames / paper.skip
    assert (learning.batch, learning.unroll, learning.warmup) == (paper.batch, paper.unroll, paper.batch)
    assert (learning.learning_rate, learning.weight_decay, learning.clip_update) == (paper.step_size, paper.decay, paper.clip)
    assert round(learning.batch * learning.replay) == round(paper.batch * paper.replay)
    assert learning.streams == max(1, fresh_trajectories(learning))  # each stream gives one, and none is thrown away
    assert abs(learning.capacity * learning.unroll - paper.held) < learning.unroll
    assert learning.warmup_updates == round(paper.warmup / paper.skip / (learning.streams * learning.unroll))


def test_every_preset_of_the_paper_has_a_column() -> None:
    full = {name.removeprefix("paper-") for name in preset_names() if name.startswith("paper-") and not name.endswith("-mini")}
    assert full == set(PUBLISHED)


def test_discovery_agrees_with_itself() -> None:
    config, discovery, learning = discovered()
    assert (learning.batch, learning.unroll, learning.replay, learning.learning_rate) == (96, 29, 0.9, 3e-4)
    assert learning.streams == fresh_trajectories(learning) == 10
    decisions = learning.streams * learning.unroll  # that an update costs
    assert discovery.lifetimes == tuple(round(budget / SKIP / decisions) for budget in BUDGETS)
    assert (discovery.agents, discovery.window) == (2, 20)
    assert config.steps == round(3 * BUDGETS[0] / SKIP / (discovery.window * decisions))  # its best rule came after 3 lifetimes
    validated = learning.streams * discovery.validation_unroll
    assert 48 * 29 <= validated < 48 * 29 + learning.streams
    assert (discovery.meta_optimiser, discovery.meta_learning_rate, discovery.meta_clip) == ("per_agent", 1e-3, 1.0)
    assert (discovery.critic_discount, discovery.critic_trace, discovery.critic_learning_rate) == (0.997, 0.95, 3e-4)
    assert discovery.critic_learns_from == "validation"
    assert config.evaluation_updates == min(discovery.lifetimes)
    assert config.rule_options == {}
    assert config.steps // config.evaluate_every == 10


def test_discovery_and_evaluation_agree() -> None:
    """An agent of discovery learns as those of evaluation do, with a replay ratio of 0.9 where they have 0.95."""
    (_, _, ours), (atari, theirs) = discovered(), trained("atari")
    same = ("batch", "unroll", "warmup", "learning_rate", "clip_update")
    assert [getattr(ours, name) for name in same] == [getattr(theirs, name) for name in same]
    assert ours.streams == 2 * theirs.streams == 10
    assert ours.schedule == "constant"
    # Twice the fresh trajectories per update: the longest life is half as many updates as a run of evaluation.
    updates = atari.steps / (theirs.streams * theirs.unroll)
    assert discovered()[1].lifetimes[0] == pytest.approx(updates / 2, abs=1)


# -- the scale -------------------------------------------------------------------------------------------------------------------


def weights(widths: tuple[int, ...]) -> int:
    """Weights between layers of these widths, a good part of any network."""
    return sum(before * after for before, after in itertools.pairwise(widths))


@pytest.mark.parametrize("scale", [0.5, 0.1, 0.03])
def test_a_scale_keeps_proportions(scale: float) -> None:
    config, discovery, learning = discovered(scale=scale)
    whole, paper, usual = discovered()
    assert config.steps / whole.steps == pytest.approx(scale, rel=1e-3)
    # Lives are whole windows, half of one off at most.
    assert all(life % 20 == 0 for life in discovery.lifetimes)
    for life, before in zip(discovery.lifetimes, paper.lifetimes, strict=True):
        assert abs(life - scale * before) <= 10
    assert config.evaluation_updates == min(discovery.lifetimes)
    assert config.steps // config.evaluate_every in (9, 10)
    assert learning.capacity == pytest.approx(scale * usual.capacity, abs=1)
    assert (discovery.agents, config.evaluation_seeds) == (1, 1)
    network = override(NETWORK, config.overrides)
    assert weights(network.hidden) == pytest.approx(scale * weights((512, 512)), rel=0.03)
    assert weights(discovery.critic_hidden) == pytest.approx(scale * weights((256, 256)), rel=0.05)
    rule = Sizes(**{name: value for name, value in config.rule_options.items() if name in vars(Sizes())})
    assert rule.prediction_size * rule.hidden == pytest.approx(scale * 600 * 256, rel=0.03)
    # What the protocol is stays.
    changed = {field.name for field in dataclasses.fields(Learning) if getattr(learning, field.name) != getattr(usual, field.name)}
    assert changed == {"capacity"}
    assert (discovery.window, discovery.validation_unroll, config.envs) == (20, 140, whole.envs)


def test_nothing_shrinks_to_nothing() -> None:
    config, discovery, learning = discovered(scale=1e-9)
    assert (config.steps, config.evaluate_every, config.evaluation_seeds, discovery.agents) == (1, 1, 1, 1)
    assert discovery.lifetimes == (20, 20, 20, 20)
    assert learning.capacity >= learning.batch
    assert override(NETWORK, config.overrides).hidden == (4, 4)
    assert config.rule_options["bins"] == 31
    assert config.rule_options["action_channels"] == (4, 2)  # two were two before
    assert discovered(scale=1)[0] == discovered()[0]


def test_flags_win_over_the_scale_and_a_file_keeps_its_sizes() -> None:
    config, discovery, _ = discovered(scale=0.001, agents=3, steps=7)
    assert (config.steps, discovery.agents) == (7, 3)
    assert config.scaled["lifetimes"] == [(172_414, 86_207, 43_103, 17_241), (180, 80, 40, 20)]
    assert config.scaled["rule hidden"] == [256, 8]
    assert not {"steps", "agents"} & set(config.scaled)
    further, _, _ = discovered(scale=0.001, init="disco103")
    assert further.rule_options == {}
    assert not [name for name in further.scaled if name.startswith("rule ")]
    other = build_discover({"suite": "paper", "scale": 0.001, "rule": "lpg"})
    assert (other.rule_options, other.overrides["lifetimes"]) == ({}, (180, 80, 40, 20))


def test_other_suites_have_a_scale_too() -> None:
    config = build_discover({"suite": "grids", "scale": 0.5})
    assert (config.steps, config.overrides["agents"], config.overrides["lifetimes"]) == (80, 2, (30, 50, 100))
    alone = build_discover({"suite": "catch:rows=5,columns=5", "scale": 0.5})
    assert alone.overrides == config.overrides


def test_groups_of_environments_are_families() -> None:
    config = build_discover({"suite": "paper", "envs": ["catch", "classic"], "validation": ["minatar"]})
    assert config.envs == ("catch", *SUITES["classic"].environments)
    assert config.validation == SUITES["minatar"].environments


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("discover paper --scale 0", "scale must be greater than 0 and at most 1, not 0"),
        ("discover paper --scale 2", "scale must be greater than 0 and at most 1, not 2"),
        ("discover paper --scale tiny", "--scale expects a number, not 'tiny'"),
        ("discover paper --scale 0.1 --envs nowhere/Game", "unknown environment 'nowhere/Game'"),
    ],
)
def test_bad_scales_are_one_sentence(line: str, words: str, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    refused_in_one_sentence(line, words, tmp_path, capsys)


def test_what_the_scale_did_is_shown_and_kept(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    """From the start of a run to its record; a resumed run is not shrunk again. Its agents are a fake."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rulax.commands.build.start_jax", lambda *arguments: None)
    install(monkeypatch.setattr)
    run = rulax.discover("paper", scale=0.0001, envs=["catch"], validation=["grid/delayed"], out="run")
    shown = " ".join(capsys.readouterr().err.split())
    assert "scale 0.0001: " in shown
    assert "lifetimes 172,414 86,207 43,103 17,241 -> 20 20 20 20" in shown
    record = json.loads((run.folder / "config.json").read_text())
    assert (record["settings"]["scale"], record["settings"]["scaled"]["agents"]) == (0.0001, [2, 1])
    assert record["discovery"]["lifetimes"] == [20, 20, 20, 20]
    assert not {"scale", "scaled"} & set(fixed_part(record))
    assert main(["discover", "--resume", "run", "--steps", "5", "--quiet"]) == 0
    assert json.loads((run.folder / "config.json").read_text())["discovery"] == record["discovery"]
    assert [row["step"] for row in read_rows(run.folder) if row["kind"] == "meta"] == [1, 2, 3, 4, 5]


# -- end to end ------------------------------------------------------------------------------------------------------------------

# What the notebook logs (colabs/meta_train.ipynb, agent.py and update_rules/disco.py of google-deepmind/disco_rl), and we.
OF_THE_META_STEP = {
    "rewards": "reward",
    "pos_rewards": "positive_rewards",
    "neg_rewards": "negative_rewards",
    "meta_grad_norm": "meta_gradient_norm_of_mean",
    "meta_up_norm": "meta_update_norm",
    "meta_loss": "outer_loss",
    "pg_loss": "policy_loss",
    "reg_loss": "regulariser",
    "entropy": "policy_entropy",
    "value": "critic_value",
    "adv": "critic_advantage",
    "normalized_adv": "critic_normalised_advantage",
    "val_importance_weight": "importance_weight",
}
OF_UPDATES = {
    "total_loss": "loss",
    "global_gradient_norm": "gradient_norm",
    "global_update_norm": "update_norm",
    "entropy": "entropy",
    "y_entropy": "agent_state_prediction_entropy",
    "z_entropy": "agent_action_prediction_entropy",
    "aux_policy_entropy": "agent_next_policy_entropy",
    "aux_target_entropy": "agent_next_policy_target_entropy",
    "pi_hat_entropy": "target_entropy",
    "pi_loss": "agent_policy_loss",
    "aux_kl_loss": "agent_next_policy_loss",
    "q_loss": "agent_value_loss",
    "logits": "agent_policy_logit",
    "y": "agent_state_prediction_logit",
    "z": "agent_action_prediction_logit",
    "pi_hat": "agent_policy_target_logit",
    "y_hat": "agent_state_prediction_target_logit",
    "z_hat": "agent_action_prediction_target_logit",
    "q_target": "agent_return",
    "agent_q_mean": "agent_value",
    "td": "agent_value_error",
    "normalized_td": "agent_normalised_value_error",
}
PER_FAMILY = ("reward", "positive_rewards", "negative_rewards", "outer_loss", "policy_entropy", "critic_value", "critic_advantage")
PER_FAMILY += ("loss", "entropy", "gradient_norm", "update_norm", "meta_gradient_norm_of_mean", "critic_loss", "return")
NAMED = re.compile(r"`(\w+)(?:/FAMILY)?`")


def described() -> set[str]:
    """The names in the table of what is logged."""
    table = (ROOT / "docs" / "discovery.md").read_text().partition("## What is logged")[2].partition("\n## ")[0]
    return {name for row in table.splitlines() if row.startswith("| `") for name in NAMED.findall(row.split("|")[1])}


def test_what_the_reference_logs_is_in_the_table() -> None:
    table = (ROOT / "docs" / "discovery.md").read_text().partition("## What is logged")[2].partition("\n## ")[0]
    for theirs, ours in (*OF_THE_META_STEP.items(), *OF_UPDATES.items()):
        (row,) = (row for row in table.splitlines() if row.startswith("|") and ours in NAMED.findall(row.split("|")[1]))
        names, others = (NAMED.findall(cell) for cell in row.split("|")[1:3])
        assert names.index(ours) == others.index(theirs), row


@pytest.mark.timeout(600)
@jax.default_prng_impl("unsafe_rbg")  # compiles in less time than JAX's own
def test_the_paper_at_a_tiny_scale(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    """The command, agents and the meta-network with all its parts are real; one family, because each has a program to compile.

    Only evaluations are a fake: those of test_discover_real.py are real.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rulax.commands.discover.evaluations.FamilyEvaluation", FakeEvaluation)
    monkeypatch.setattr("rulax.commands.discover.evaluations.measure_baselines", lambda *arguments: (Baselines(-1.0, 1.0), 0))
    (tmp_path / "alone.yaml").write_text("validation: []\n")
    family = "catch:rows=3,columns=3"
    line = ["discover", "paper", "--scale", "1e-5", "--envs", family, "--preset", "alone.yaml", "--steps", "2", "--out", "run"]
    assert main(line) == 0
    assert "scale 1e-05: " in " ".join(capsys.readouterr().err.split())
    record = json.loads((tmp_path / "run" / "config.json").read_text())
    assert record["discovery"]["lifetimes"] == [20, 20, 20, 20]
    rows = read_rows(tmp_path / "run")
    lived = [row for row in rows if row["kind"] == "meta"]
    assert [row["step"] for row in lived] == [1, 2]
    logged = {*OF_THE_META_STEP.values(), *OF_UPDATES.values()}
    assert logged <= set(lived[0])
    assert {f"{name}/{family}" for name in PER_FAMILY} <= set(lived[0])
    assert {name.partition("/")[0] for name in lived[0]} - {"kind", "step", "seconds"} <= described()
    # A window is 20 updates of 10 streams and 29 steps: each step pays 1, -1 or nothing.
    assert 0 < lived[0]["positive_rewards"] + lived[0]["negative_rewards"] <= 20 * 10 * 29
    total = 20 * 10 * 29 * lived[0]["reward"]
    assert lived[0]["positive_rewards"] - lived[0]["negative_rewards"] == pytest.approx(total, rel=1e-3)
    assert all(lived[0][f"{name}/{family}"] == pytest.approx(lived[0][name]) for name in ("reward", "outer_loss", "critic_value"))
    assert load_rule(tmp_path / "run" / "rule.safetensors").sizes == sizes_of(saved_discovery(record, {}))
