"""`rulax compare --suite`: ids, budgets, agents, evaluations, published scores beside ours, and every bad input in one sentence."""

from __future__ import annotations

import importlib.util
import json
import shlex
from pathlib import Path

import numpy as np
import pytest

import rulax
from rulax.commands.cells import UNTRAINED
from rulax.commands.cli import main
from rulax.commands.compare.cells import plan, untrained_recipe
from rulax.commands.compare.provenance import compare_command
from rulax.commands.compare.settings import CompareConfig, build_compare, settings_of
from rulax.commands.flags import make_parser, parse
from rulax.commands.names import read_spec
from rulax.commands.preset_files import load_preset
from rulax.envs.registry import list_environments
from rulax.envs.suites import SUITES, Suite
from rulax.errors import UserError
from rulax.evaluation.normalised import ATARI57, DMLAB30, PROCGEN, PROCGEN_ID
from tests.commands.bad_lines import refused_in_one_sentence
from tests.commands.test_compare import results, small  # noqa: F401

EXTRAS = {"atari": "ale_py", "envpool": "envpool", "gymnax": "gymnax", "crafter": "crafter", "nethack": "nle"}


def from_line(line: str) -> CompareConfig:
    return build_compare(parse(make_parser("rulax compare", CompareConfig, ""), CompareConfig, shlex.split(line)))


# -- ids -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SUITES)
def test_ids_are_those_of_their_adapters(name: str) -> None:
    """Where the package is missing, no more than that the id has the right form can be known."""
    ours = {entry.name for entry in list_environments()}
    for env in SUITES[name].environments:
        spec = read_spec(env)
        family, _, id = spec.env.partition("/")
        if spec.env in ours:
            continue
        if family in EXTRAS and importlib.util.find_spec(EXTRAS[family]):
            assert id in importlib.import_module(f"rulax.envs.adapters.{family}").ids(), env
        elif family == "envpool":
            found = PROCGEN_ID.fullmatch(id)
            assert (found and found["game"] in PROCGEN) or id == "Sokoban-v0"
        elif family == "dm_env":
            assert spec.options["level"].removesuffix("_train") in DMLAB30
        else:
            assert family in EXTRAS, env


def test_suites_are_complete() -> None:
    games = {name: {read_spec(env).env.partition("/")[2] for env in suite.environments} for name, suite in SUITES.items()}
    assert games["atari57"] == set(ATARI57)
    assert games["atari5"] == {"BattleZone", "DoubleDunk", "NameThisGame", "Phoenix", "Qbert"}
    assert games["procgen16"] == {f"{game}Hard-v0" for game in PROCGEN}
    assert len(SUITES["dmlab30"].environments) == 30
    assert all(read_spec(env).options == {"num_levels": 500} for env in SUITES["procgen16"].environments)


# -- budgets and agents --------------------------------------------------------------------------------------------------------


def test_a_budget_is_steps_seeds_and_agents() -> None:
    config = from_line("--suite atari5 --rules disco103:no_yz ppo actor_critic:learning_rate=1e-4 --budget paper")
    assert (config.steps, config.seeds) == (50_000_000, 2)  # 200 million frames, four of them for a decision
    disco, ppo, other = [cell.config for cell in plan(config, Path("x"))[:3]]
    preset = load_preset("paper-atari")
    assert {name: disco.overrides[name] for name in ("batch", "replay", "capacity", "warmup", "hidden", "channels")} == {
        name: tuple(value) if isinstance(value := preset[name], list) else value
        for name in ("batch", "replay", "capacity", "warmup", "hidden", "channels")
    }
    for each in (ppo, other):  # the same network, and the learning that each rule recommends
        assert each.overrides["channels"] == disco.overrides["channels"]
        assert "batch" not in each.overrides
    assert other.overrides["learning_rate"] == 1e-4
    mini = from_line("--suite atari5 --rules disco103 ppo --hidden 32")
    assert mini.budget == "mini"
    cells = [cell.config for cell in plan(mini, Path("x"))[:2]]
    assert cells[1].overrides["epochs"] == load_preset("atari-ppo-mini")["epochs"]
    assert {cell.overrides["hidden"] for cell in cells} == {(32,)}  # what the user says wins
    assert untrained_recipe(mini).network.torso == load_preset("paper-atari-mini")["torso"]
    assert untrained_recipe(mini).network.hidden == (32,)


def test_options_of_presets_are_the_environments() -> None:
    config = from_line("--suite procgen16 --rules disco103 --budget paper")
    assert config.envs[0] == "envpool/BigfishHard-v0:num_levels=500,stack=4"
    assert config.eval_episodes == 100
    assert from_line("--suite crafter --rules ppo --budget paper").envs == ("crafter/reward:stack=32",)
    assert plan(from_line("--suite procgen16 --rules ppo --budget 1M --seeds 3"), Path("x"))[0].config.steps == 1_000_000


def test_where_random_play_is_published_nothing_measures_it_again() -> None:
    assert not any(cell.purpose == UNTRAINED for cell in plan(from_line("--suite atari57 --rules ppo"), Path("x")))
    stated = from_line("--suite atari5 --rules ppo --reference atari/Qbert=1000")
    assert [cell.env for cell in plan(stated, Path("x")) if cell.purpose == UNTRAINED] == ["atari/Qbert"]
    assert sum(cell.purpose == UNTRAINED for cell in plan(from_line("--suite minatar --rules ppo"), Path("x"))) == 5


LINES = [
    "--suite atari57 --rules disco103 ppo --budget paper",
    "--suite minatar --rules ppo --budget 30k --seeds 2 --part 2/3",
    "atari/Pong atari/Alien --suite atari57 --rules ppo --hidden 8",
    "--suite classic --rules ppo --steps 3k",
    "--suite crafter --rules ppo --eval-episodes 0",
    "grids catch --rules ppo --budget 20k",
]


@pytest.mark.parametrize("line", LINES)
def test_commands_make_the_same_again(line: str) -> None:
    config = from_line(line)
    again = from_line(compare_command(config).removeprefix("rulax compare "))
    assert settings_of(again) == settings_of(config)
    kept = json.loads(json.dumps(settings_of(config)))  # as a folder keeps them
    assert json.loads(json.dumps(settings_of(build_compare(kept)))) == kept


def test_a_folder_keeps_what_a_suite_was(small, tmp_path: Path, monkeypatch) -> None:  # noqa: F811
    assert (
        main(["compare", "--suite", "classic", "--rules", "ppo", "--budget", "100", "--seeds", "2", "--out", "here", "--quiet"])
        == 0
    )
    monkeypatch.setitem(SUITES, "classic", SUITES["grids"])
    assert main(["compare", "--resume", "here", "--quiet"]) == 0
    assert [env["name"] for env in results("here")["environments"]] == ["cartpole", "mountain_car", "acrobot", "pendulum"]


def test_a_suite_of_ones_own_needs_a_number(monkeypatch) -> None:
    monkeypatch.setitem(SUITES, "waiting", Suite("the first action decides", ("chain/short", "chain/long")))
    config = from_line("--suite waiting --rules ppo --budget 3k")
    assert (config.envs, config.steps, config.seeds) == (("chain/short", "chain/long"), 3000, 5)
    with pytest.raises(UserError, match="the suite waiting has no budget of its own; give --budget N"):
        from_line("--suite waiting --rules ppo")


def test_help_lists_all_suites(capsys) -> None:
    assert main(["compare", "--help"]) == 0
    text = capsys.readouterr().out.partition("suites (and their budgets):")[2]
    assert [line.split()[0] for line in text.strip().split("\n\n")[0].splitlines()] == list(SUITES)


BAD = [
    ("compare --suite minatr --rules ppo", "unknown suite 'minatr'; did you mean 'minatar'"),
    ("compare --suite dmlab30 --rules ppo", "the suite dmlab30 needs DeepMind Lab, which is on no package index"),
    ("compare --suite grids --rules ppo --budget paper", "nobody has published scores in the suite grids"),
    ("compare --suite minatar --rules ppo --budget tiny", "budget expects a number of steps, such as 200k, not 'tiny'"),
    ("compare catch --rules ppo --budget mini", "budgets by name are a suite's: give --suite too"),
    ("compare --suite classic --rules ppo --budget 10k --steps 20k", "the budget is 10,000 steps, and --steps says 20,000"),
    ("compare --suite classic --rules ppo --budget 0", "steps must be at least 1"),
    ("compare catch --suite classic --rules ppo", "'catch' is not in the suite classic"),
    ("compare --suite classic", "which rules?"),
    ("compare classic --rules ppo --part 0/3", "part expects I/N, such as 2/4 for the second of four, not '0/3'"),
    ("compare classic --rules ppo --part two", "part expects I/N"),
    ("compare catch --rules ppo --part 2/2", "this comparison can be shared out over at most 1 part"),
    ("compare classic --rules ppo --part 1/2 --tune lr=1,2", "--tune cannot be shared out by --part"),
    ("compare --merge nowhere elsewhere", "nowhere holds no run"),
    ("compare --merge nowhere --rules ppo", "--merge takes all settings from the folders: leave --rules out"),
]


@pytest.mark.parametrize(("line", "words"), BAD, ids=[line for line, _ in BAD])
def test_one_sentence_and_nothing_on_disk(line: str, words: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    refused_in_one_sentence(line, words, tmp_path, capsys)


@pytest.mark.parametrize("suite", ["procgen16", "nethack", "atari5"])
def test_a_suite_whose_package_is_missing_is_refused_before_anything_is_trained(
    suite: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    family = SUITES[suite].environments[0].partition("/")[0]
    for module in (EXTRAS[family], f"{EXTRAS[family]}.roms"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    refused_in_one_sentence(f"compare --suite {suite} --rules ppo", f"pip install 'rulax[{family}]'", tmp_path, capsys)


# -- scores --------------------------------------------------------------------------------------------------------------------


def test_published_scores_stand_beside_ours(small, monkeypatch) -> None:  # noqa: F811
    monkeypatch.setattr("rulax.commands.build.make_environment", lambda name, options: rulax.make("catch"))
    found = rulax.compare(suite="minatar", rules=["ppo", "actor_critic"], budget=100, seeds=2, out="here")
    dqn = next(entry for entry in found.results["published"] if entry["agent"] == "DQN")
    assert dqn["returns"]["gymnax/Breakout-MinAtar"] == 10.0
    # On the axis of this comparison: 0 is an untrained agent of it, 1 its best rule.
    for number, env in enumerate(found.results["environments"]):
        score = (dqn["returns"][env["name"]] - env["random"]) / (env["reference"] - env["random"])
        assert dqn["scores"][env["name"]] == pytest.approx(score)
        assert found.results["statistics"]["overall"]["scores"]["ppo"][0][number] <= 2
    assert dqn["statistics"]["mean"] == pytest.approx(np.mean(list(dqn["scores"].values())))
    table = " ".join(found.table.split())
    for words in ("DQN (5M)", "PPO (5M)", "Young & Tian 2019", "sticky"):
        assert words in table
    assert found.environments == list(SUITES["minatar"].environments)
    some = rulax.compare(["gymnax/Breakout-MinAtar"], suite="minatar", rules=["ppo"], budget=100, seeds=2, out="some")
    assert some.environments == ["gymnax/Breakout-MinAtar"]
    nothing = rulax.compare(suite="classic", rules=["ppo"], budget=100, seeds=2, out="none")
    assert nothing.results["published"] == []
    assert "nobody has published scores in the suite classic" in nothing.table


def test_aggregates_of_a_whole_suite_are_shown_only_beside_the_whole(small, monkeypatch) -> None:  # noqa: F811
    monkeypatch.setattr("rulax.commands.build.make_environment", lambda name, options: rulax.make("catch"))
    monkeypatch.setattr("rulax.commands.compare.settings.on_host", lambda env: False)
    monkeypatch.setattr("rulax.commands.compare.cells.on_host", lambda env: False)
    five = rulax.compare(suite="atari5", rules=["ppo"], budget=10_000, seeds=2, out="five")
    assert five.results["normalisation"] == "scores are as published, 0 is random play and 1 a human"
    human = next(entry for entry in five.results["published"] if entry["agent"] == "human")
    assert human["statistics"] == {"iqm": 1.0, "median": 1.0, "mean": 1.0, "optimality_gap": 0.0}
    assert five.results["atari5"]["ppo"]["value"] >= 0
    assert "Atari-5: the median over 57 games" in five.table
    one = rulax.compare(["atari/Pong"], suite="atari57", rules=["ppo"], budget=10_000, seeds=2, out="one")
    assert not next(entry for entry in one.results["published"] if entry["agent"] == "Disco57")["statistics"]
    assert one.results["atari5"] is None


SMALL = {"streams": 4, "unroll": 4, "hidden": 8}


def test_scores_of_an_evaluation(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rulax.commands.compare.cells.UNTRAINED_STEPS", (800, 800))
    monkeypatch.setattr("rulax.report.plot.save_figure", lambda *arguments: None)
    env = "catch:rows=4,columns=3"
    settings = {"rules": ["policy_gradient"], "seeds": 2, "steps": 800, "eval_episodes": 6, **SMALL}
    found = rulax.compare([env], **settings, out="here")
    (cell,) = found.results["cells"]
    played = json.loads((tmp_path / "here" / cell["folder"] / "evaluation.json").read_text())
    assert np.shape(played["returns"]) == (2, 6)
    assert set(np.ravel(played["returns"])) <= {-1.0, 1.0}
    assert cell["final_returns"] == pytest.approx(np.mean(played["returns"], 1))
    assert cell["returns_of_training"] != cell["final_returns"]
    assert "return of separate evaluation episodes" in found.table
    (tmp_path / "here" / cell["folder"] / "evaluation.json").unlink()  # as if it had been stopped in between
    assert rulax.compare(resume="here").results["cells"][0]["final_returns"] == cell["final_returns"]


def test_crafters_achievements_are_those_of_the_game(monkeypatch, tmp_path: Path) -> None:
    crafter = pytest.importorskip("crafter")
    from rulax.commands.compare.evaluation import success
    from rulax.envs.adapters.crafter import recorded

    environment = rulax.make("crafter/reward", length=40, area=(16, 16), stack=2)
    episodes: list[list[dict[str, int]]] = []
    streams = recorded(environment, episodes).open(3)
    streams.start(5)
    actions = np.random.default_rng(0).integers(0, 17, (100, 3))
    seeds = np.random.SeedSequence(5).generate_state(3)
    for action in actions:
        streams.step(action)
    # The same games with Crafter alone, which counts for itself what its player has unlocked. A step after a time limit is a reset.
    expected = []
    for stream, seed in enumerate(seeds):
        game, ended, over = crafter.Env(seed=int(seed), length=40, area=(16, 16)), [], False
        game.reset()
        for action in actions[:, stream]:
            if over:
                game.reset()
                over = False
                continue
            _, _, done, info = game.step(int(action))
            if done:
                ended.append(dict(info["achievements"]))
                over = info["discount"] != 0
                if not over:
                    game.reset()
        expected.append(ended)
    assert episodes == expected
    assert min(map(len, episodes)) >= 2
    rates = success(episodes, 4)  # two of the first stream, one of each other
    counted = [*expected[0][:2], expected[1][0], expected[2][0]]
    assert rates == {name: np.mean([each[name] > 0 for each in counted]) for name in counted[0]}
    assert len(rates) == 22


@pytest.mark.slow
def test_crafter_end_to_end(monkeypatch, tmp_path: Path) -> None:
    pytest.importorskip("crafter")
    monkeypatch.chdir(tmp_path)
    line = ["--suite", "crafter", "--rules", "ppo", "--budget", "512", "--seeds", "1", "--eval-episodes", "2"]
    tiny = ["--streams", "2", "--unroll", "8", "--hidden", "8", "--channels", "4", "--epochs", "1", "--minibatches", "1"]
    assert main(["compare", *line, *tiny, "--out", "here", "--quiet"]) == 0
    found = results("here")
    rates = found["achievements"]["rates"]["ppo"]
    assert len(rates) == 22
    assert all(0 <= rate["value"] <= 1 for rate in rates.values())
