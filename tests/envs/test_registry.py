"""Names: quick to list, clear when wrong."""

import importlib
import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import rulax.envs
from rulax.commands.listing.run import envs_command
from rulax.envs import MissingExtra, UnknownEnvironment, families, list_environments, make, registry
from rulax.envs.barcode import barcode_bandit
from rulax.envs.base import HostEnvironment
from rulax.envs.catalogue import adapter_families
from rulax.envs.catch import Catch
from rulax.envs.wrappers import TimeLimit


def test_listing_does_not_import_jax():
    code = "import sys, rulax.envs as e; e.list_environments(); e.families(); assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_listing_families_imports_no_package_of_theirs():
    code = (
        "import sys; from rulax.commands.listing.run import envs_command; from rulax.envs.catalogue import adapter_families; "
        "envs_command({}); "
        "heavy = {'jax', 'numpy', *(family.package for family in adapter_families().values())} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    for family in adapter_families().values():
        (line,) = [line for line in shown.splitlines() if line.startswith(f"{family.prefix}/ID")]
        assert line.split()[1:3] == [family.extra, "yes" if family.installed else "no"]
        assert line.endswith(f"{family.summary}; for example {family.prefix}/{family.examples[0]}")
    assert "install an extra with: pip install 'rulax[EXTRA]'" in shown


def test_on_a_terminal_the_list_fits_and_families_lose_nothing(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    envs_command({})
    shown = re.sub(r"\033\[\dm", "", capsys.readouterr().out)
    assert max(map(len, shown.splitlines())) <= 80
    words = " ".join(shown.split())
    for family in adapter_families().values():
        state = "yes" if family.installed else "no"
        assert (
            f"{family.prefix}/ID {family.extra} {state} {family.summary}; for example {family.prefix}/{family.examples[0]}" in words
        )


def test_every_name_has_a_summary_and_a_family():
    entries = list_environments()
    assert len({entry.name for entry in entries}) == len(entries)
    for entry in entries:
        assert entry.name == entry.name.lower()
        assert entry.summary
        assert "\n" not in entry.summary
    assert [entry for group in families().values() for entry in group] == entries
    assert {"catch", "grid", "bandit", "mdp", "chain", "probe"} <= set(families())


def test_options_are_fields():
    assert make("catch", rows=8, columns=8) == Catch(8, 8)
    assert make("cartpole", limit=100).limit == 100
    assert not isinstance(make("cartpole", limit=0), TimeLimit)
    assert make("grid/random-small", height=6).environment.height == 6


def test_arguments_of_what_puts_an_environment_together_are_options():
    assert make("bandit/barcode", arms="3", barcodes=4, bits=2) == barcode_bandit(3, barcodes=4, bits=2)
    assert make("bandit/barcode", staggered=True).staggered
    half_circle = make("point/half_circle", radius=0.5, bins=3).environment
    assert (half_circle.environment.radius, half_circle.bins) == (0.5, 3)
    with pytest.raises(ValueError, match="no option 'environment'; it has arms, pulls, barcodes, repeats, bits, staggered"):
        make("bandit/barcode", environment=Catch())


def test_options_are_read_by_the_kind_of_their_default():
    assert make("catch", rows=8.0) == Catch(8)
    kinds = make("grid/random-small", kinds=[[1, 0, 0.1, 1], [-1, 1, 0, 1]]).environment.kinds
    assert kinds == ((1.0, 0.0, 0.1, 1), (-1.0, 1.0, 0.0, 1))
    for options in ({"rows": 5.5}, {"rows": "abc"}, {"rows": True}, {"rows": None}):
        with pytest.raises(ValueError, match="'catch': rows expects a whole number"):
            make("catch", **options)
    with pytest.raises(ValueError, match="slip expects a number, not 'x'"):
        make("grid/random-small", slip="x")


def test_an_unknown_option_names_the_nearest():
    with pytest.raises(ValueError, match="'catch' has no option 'row'; did you mean 'rows'"):
        make("catch", row=8)
    with pytest.raises(ValueError, match="'catch' has no option 'limit'"):
        make("catch", limit=8)
    with pytest.raises(ValueError, match="it has none"):
        make("probe/value", colour=1)
    with pytest.raises(ValueError, match="'bandit/bernoulli' has no option 'colour'; it has arms, pulls"):
        make("bandit/bernoulli", colour=1)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("cach", "catch"),
        ("Catch", "catch"),
        ("grid/tabular_dense", "grid/tabular-dense"),
        ("mountaincar", "mountain_car"),
        ("gymnasium/bandit/bernouli", "bandit/bernoulli"),
    ],
)
def test_an_unknown_name_suggests_near_ones(name, near):
    with pytest.raises(UnknownEnvironment, match=f"unknown environment '{name}'; did you mean .*'{near}"):
        make(name)


def test_a_hopeless_name_points_to_the_list():
    with pytest.raises(UnknownEnvironment, match="`rulax envs` lists all"):
        make("xyzzy qwv")


def hide(monkeypatch, *packages):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name in packages else find_spec(name, *rest))


@pytest.mark.parametrize("family", adapter_families().values(), ids=str)
def test_a_missing_extra_says_what_to_install(monkeypatch, family):
    hide(monkeypatch, family.package)
    assert not family.installed
    with pytest.raises(MissingExtra, match=rf"needs {family.package}.*pip install 'rulax\[{family.extra}\]'"):
        make(f"{family.prefix}/{family.examples[0]}")


def test_every_family_has_an_adapter_an_extra_and_a_line_in_the_documentation():
    root = Path(__file__).resolve().parents[2]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    text = (root / "docs" / "adapters.md").read_text()
    for prefix, family in adapter_families().items():
        assert all(">=" in requirement for requirement in extras[family.extra]), f"{family.extra} has a requirement without a floor"
        module = importlib.import_module(f"rulax.envs.adapters.{prefix}")  # without its package
        assert callable(module.make)
        assert callable(module.ids)
        assert f"`{family.prefix}/" in text
        assert family.install in text
        assert f"adapters/{family.prefix}.md" in text, "a family has a page of its own"


def test_what_an_atari_game_is_called_does_not_depend_on_who_imported_ale_py(monkeypatch):
    """Once it is imported, Gymnasium knows ALE/Pong-v5: a name that was refused before would train, on other observations."""
    pytest.importorskip("ale_py")
    for name in ("ALE/Pong-v5", "PongNoFrameskip-v4", "Pong-v4", "Pong", "gymnasium/ALE/Pong-v5"):
        with pytest.raises(UnknownEnvironment, match="did you mean 'atari/Pong'"):
            make(name)
    assert make("ale_py:ALE/Pong-v5").observation.shape == (210, 160, 3)


@pytest.mark.parametrize("family", adapter_families().values(), ids=str)
def test_whether_an_environment_steps_on_the_cpu_is_known_without_making_it(family):
    pytest.importorskip(family.package)
    name = f"{family.prefix}/{family.examples[0]}"
    if family.prefix == "dm_env":
        pytest.importorskip("dmlab2d")
        name = "dm_env/tests.envs.adapters.lab2d:PushBox"
    assert registry.steps_on_host(name) == isinstance(make(name), HostEnvironment) == (not family.in_jax)


def test_names_without_a_library_are_ours_or_gymnasiums():
    assert not any(registry.steps_on_host(entry.name) for entry in list_environments())
    assert all(registry.steps_on_host(name) for name in ("CartPole-v1", "my_package:Own-v0", "ALE/Pong-v5"))


def test_without_extras_our_names_are_still_suggested(monkeypatch):
    hide(monkeypatch, "gymnax", "gymnasium")
    with pytest.raises(UnknownEnvironment, match=r"pip install 'rulax\[gymnasium\]'; did you mean 'cartpole'"):
        make("CartPole-v1")


class FakeAdapter:
    def __init__(self, ids):
        self._ids = ids

    def ids(self):
        return self._ids

    def make(self, id, **options):
        return id, options


def pretend(monkeypatch, adapter, ids):
    pytest.importorskip(adapter)
    import_module = importlib.import_module
    fakes = {f"rulax.envs.adapters.{adapter}": FakeAdapter(ids)}
    monkeypatch.setattr(importlib, "import_module", lambda name: fakes.get(name) or import_module(name))


def test_other_names_go_to_their_adapter(monkeypatch):
    pretend(monkeypatch, "gymnasium", ["CartPole-v1"])
    assert make("CartPole-v1", max_episode_steps=5) == ("CartPole-v1", {"max_episode_steps": 5})
    assert make("gymnasium/CartPole-v1") == ("CartPole-v1", {})
    assert make("package:Other-v0") == ("package:Other-v0", {})


def test_gymnax_names_go_to_its_adapter(monkeypatch):
    pretend(monkeypatch, "gymnax", ["CartPole-v1", "gymnax/Catch-bsuite"])
    assert make("gymnax/CartPole-v1", a=1) == ("CartPole-v1", {"a": 1})
    assert make("gymnax/Catch-bsuite") == ("Catch-bsuite", {})
    monkeypatch.setattr(registry, "_ids", lambda adapter: ["CartPole-v1"] if adapter == "gymnax" else [])
    with pytest.raises(UnknownEnvironment, match="did you mean 'gymnax/CartPole-v1'"):
        make("gymnax/CartPol-v1")


def test_lazy_names_are_found():
    for name in rulax.envs.__all__:
        assert getattr(rulax.envs, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        rulax.envs.nothing  # noqa: B018
