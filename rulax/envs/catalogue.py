"""Other libraries' environments: a prefix, the package behind it, and the extra that installs it. Imports none of them."""

from __future__ import annotations

import dataclasses
import importlib.util


@dataclasses.dataclass(frozen=True)
class AdapterFamily:
    """The environments of one library, named `prefix/ID`; the adapter is `rulax.envs.adapters.<prefix>`."""

    prefix: str
    package: str  # what is imported
    extra: str  # what is installed: pip install 'rulax[extra]'
    summary: str
    examples: tuple[str, ...]
    in_jax: bool = False  # its environments run on the device; all others step on the CPU

    @property
    def installed(self) -> bool:
        """Whether the package can be found; it is not imported."""
        return importlib.util.find_spec(self.package) is not None

    @property
    def install(self) -> str:
        """The line that installs it."""
        return f"pip install 'rulax[{self.extra}]'"


_FAMILIES = (
    AdapterFamily(
        "gymnax",
        "gymnax",
        "gymnax",
        "Gymnax: classic control, MinAtar, bsuite, in JAX",
        ("CartPole-v1", "Breakout-MinAtar"),
        in_jax=True,
    ),
    AdapterFamily(
        "gymnasium",
        "gymnasium",
        "gymnasium",
        "any Gymnasium id, real numbers by bins (bins=11); the prefix may be left out",
        ("CartPole-v1", "Pendulum-v1"),
    ),
    AdapterFamily("atari", "ale_py", "atari", "Atari games as the papers play them (ale-py)", ("Pong", "MsPacman")),
    AdapterFamily(
        "envpool", "envpool", "envpool", "EnvPool: Atari, ProcGen, Sokoban on levels of Boxoban", ("CoinrunEasy-v0", "Sokoban-v0")
    ),
    AdapterFamily("crafter", "crafter", "crafter", "Crafter, from pixels", ("reward", "noreward")),
    AdapterFamily(
        "craftax", "craftax", "craftax", "Craftax and Craftax-Classic, in JAX", ("Craftax-Classic-Symbolic-v1",), in_jax=True
    ),
    AdapterFamily("nethack", "nle", "nethack", "the NetHack Learning Environment", ("NetHackScore-v0", "NetHackChallenge-v0")),
    AdapterFamily(
        "jumanji", "jumanji", "jumanji", "Jumanji: Sokoban on generated levels, Snake, in JAX", ("Sokoban", "Snake"), in_jax=True
    ),
    AdapterFamily(
        "xland", "xminigrid", "xland", "XLand-MiniGrid, in JAX", ("MiniGrid-DoorKey-8x8", "MiniGrid-FourRooms"), in_jax=True
    ),
    AdapterFamily("minigrid", "minigrid", "minigrid", "MiniGrid and BabyAI, what the agent sees", ("MiniGrid-Empty-5x5-v0",)),
    AdapterFamily("dm_env", "dm_env", "dm_env", "any dm_env environment that a function of yours makes", ("module:function",)),
)


def adapter_families() -> dict[str, AdapterFamily]:
    """The families of other libraries by their prefix, in the order of the documentation."""
    return {family.prefix: family for family in _FAMILIES}
