"""Rule files: a discovered rule on disk, ours (.safetensors) or the reference's (.npz), and the published rule Disco103.

    file -> tensors by our readable paths -> `rule_params`, such as a `MetaNetwork` -> rule

What a rule of each kind is made of is in rules/kinds.py; the reference's format holds meta-networks only.

Files are not trusted: nothing is unpickled, and every shape is compared with what the sizes require before it is used.
"""

from __future__ import annotations

import hashlib
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rulax.files import cache_folder, write_atomically
from rulax.metanet.sizes import Sizes
from rulax.rules import rule_files, rule_settings
from rulax.rules.ablations import ablate
from rulax.rules.base import UpdateRule
from rulax.rules.disco import LEARNING as LEARNING
from rulax.rules.disco import NETWORK as NETWORK
from rulax.rules.haiku_names import from_haiku, shapes_in_haiku, sizes_from_haiku, to_haiku
from rulax.rules.kinds import KINDS, kind_of
from rulax.rules.registry import DISCO103_FILE as FILE_NAME
from rulax.rules.registry import EMBEDDED, maker_of
from rulax.rules.registry import find_disco103 as find_disco103
from rulax.rules.rule_files import RuleFileError
from rulax.rules.rule_settings import RuleSettings
from rulax.types import Array, PyTree

SHA256 = "dac840a15b81e8805326363458c33979626172618f620d9e6e170315388530aa"
URLS = tuple(  # the second is where the file was before the reference became a package
    f"https://raw.githubusercontent.com/google-deepmind/disco_rl/main/{folder}update_rules/weights/{FILE_NAME}"
    for folder in ("disco_rl/", "")
)
DISCO103_ABOUT = {
    "found": "Oh et al., Discovering state-of-the-art reinforcement learning algorithms, Nature 648 (2025): 103 environments",
    "licence": "Google DeepMind; code Apache-2.0, other material CC-BY 4.0",
    # Not a setting of its discovery: agents whose values start at zero learn where others do not ("What Disco103 needs" in
    # docs/results/disco103.md).
    rule_settings.KEY: '{"network": {"value_init": "zero"}}',
}
UNKNOWN = RuleSettings(LEARNING, NETWORK)  # for files of meta-networks that do not state their settings
NOT_INSTALLED = "rule disco103 is not installed: run `rulax rules get disco103`, or with `--from FILE` if you have disco_103.npz"


class RuleFile(NamedTuple):
    """A discovered rule, and the metadata of its file."""

    params: PyTree
    sizes: Any  # of the class that its kind has
    about: dict[str, str]  # `found`, `licence`, and any other metadata
    rule_settings: RuleSettings = UNKNOWN  # the recommended settings


# -- rules -----------------------------------------------------------------------------------------------------------------


def rule_of(loaded: RuleFile, constants: Any = None) -> UpdateRule:
    """The rule in a file: `init` returns the file's parameters, whatever the key. `constants` replace those of the file."""

    def init(key: Array) -> PyTree:
        del key
        return loaded.params

    _, make = maker_of(kind_of(loaded.sizes))
    return make(loaded.sizes, constants or loaded.rule_settings.constants)._replace(init=init)


def unstated(sizes: Any) -> RuleSettings:
    """What a file that does not state its settings is used with: what a new rule of its kind recommends."""
    module, _ = maker_of(kind_of(sizes))
    return RuleSettings(module.LEARNING, module.NETWORK, KINDS[kind_of(sizes)].constants())


def without(rule: RuleFile, ablations: tuple[str, ...]) -> RuleFile:
    """The same rule without the parts that `ablations`, keys of `metanet.sizes.ABLATIONS`, name."""
    tensors: Mapping[str, Any] = take_apart(rule.params)
    sizes = rule.sizes
    if ablations and not isinstance(sizes, Sizes):
        raise ValueError(f"ablations ({ablations[0]}) are for rules with a meta-network, and this one is of kind {kind_of(sizes)}")
    for ablation in ablations:
        tensors, sizes = ablate(tensors, sizes, ablation)
    return rule._replace(params=assemble(tensors, sizes), sizes=sizes) if ablations else rule


# -- files -----------------------------------------------------------------------------------------------------------------


def load_rule(path: str | Path) -> RuleFile:
    """Read a rule file of either kind; a `RuleFileError` states in one sentence what is wrong with it."""
    path = Path(path)
    if path.suffix == ".npz":
        theirs = rule_files.read_npz(path)
        sizes, about = sizes_from_haiku(path.name, theirs), DISCO103_ABOUT if is_disco103(path) else {}
        shapes = shapes_of(sizes)
        # Checked under the reference's names, so that an error names a tensor of the file.
        check(path.name, theirs, shapes_in_haiku(shapes))
        tensors = from_haiku(theirs, shapes)
    elif path.suffix == ".safetensors":
        tensors, sizes, about = rule_files.read_safetensors(path)
        check(path.name, tensors, shapes_of(sizes))
    else:
        raise RuleFileError(f"{path.name} is not a rule file: give one that ends in .safetensors or .npz")
    found = rule_settings.from_text(path.name, about.get(rule_settings.KEY, ""), unstated(sizes))
    return RuleFile(assemble(tensors, sizes), sizes, dict(about), found)


def save_rule(path: str | Path, params: PyTree, sizes: Any, about: Mapping[str, str] | None = None) -> None:
    """Write a rule as .safetensors with metadata, or, if it has exactly the parts of Disco103, as .npz for the reference."""
    path, tensors = Path(path), take_apart(params)
    if path.suffix == ".npz":
        rule_files.write_npz(path, to_haiku(path.name, tensors))
    elif path.suffix == ".safetensors":
        rule_files.write_safetensors(path, tensors, sizes, about or {})
    else:
        raise RuleFileError(f"{path.name}: the name of a rule file ends in .safetensors or .npz")


def take_apart(params: PyTree) -> dict[str, Any]:
    """Parameters (or their shapes) by readable path, such as `trajectory.weight_input`."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def skeleton(sizes: Any) -> PyTree:
    """Parameters of shapes instead of arrays, so that sizes from a file allocate nothing."""
    _, make = maker_of(kind_of(sizes))
    return jax.eval_shape(lambda: make(sizes).init(jax.random.key(0)))


def shapes_of(sizes: Any) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor of a rule of these sizes."""
    return {path: leaf.shape for path, leaf in take_apart(skeleton(sizes)).items()}


def check(file: str, tensors: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse a file whose tensors do not have exactly the given names and shapes."""
    for name, shape in shapes.items():
        if name not in tensors:
            raise RuleFileError(f"{file}: tensor '{name}' is missing")
        if tensors[name].shape != shape:
            raise RuleFileError(f"{file}: tensor '{name}' has shape {tensors[name].shape}, but it must be {shape}")
    for name in tensors:
        if name not in shapes:
            raise RuleFileError(f"{file}: tensor '{name}' belongs to no part of a rule of these sizes")


def assemble(tensors: Mapping[str, np.ndarray], sizes: Any) -> PyTree:
    """The parameters with the given sizes and tensors, in JAX's default precision."""
    like = skeleton(sizes)
    # In the order of the skeleton's leaves, whatever the order in the file.
    leaves = [jnp.asarray(tensors[path], jnp.result_type(float)) for path in take_apart(like)]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


# -- Disco103 --------------------------------------------------------------------------------------------------------------


def path_of(name: str) -> Path:
    """The file of a discovered rule: an embedded rule, Disco103, or a path."""
    if name != "disco103":
        return EMBEDDED.get(name, Path(name))
    path = find_disco103()
    if path is None:
        raise ValueError(NOT_INSTALLED)
    return path


def is_disco103(path: Path) -> bool:
    """Whether a file is bit for bit the published one."""
    return hashlib.sha256(rule_files.read_bytes(path)).hexdigest() == SHA256


def get_disco103(source: str | Path | None = None) -> Path:
    """Install the published rule from a local copy, or from the reference's repository. Returns the path of the installed file."""
    data, origin = _download() if source is None else (rule_files.read_bytes(Path(source)), Path(source).name)
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise RuleFileError(
            f"{origin} is not the published Disco103 (its sha256 differs from {SHA256[:12]}...); nothing was installed"
        )
    folder = cache_folder() / "rules"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / FILE_NAME, data)
    except OSError as error:
        raise RuleFileError(f"{folder} cannot be written: {error.strerror or error}; set RULAX_CACHE to another folder") from None
    return folder / FILE_NAME


def _download() -> tuple[bytes, str]:
    """The published file from the first URL that has it, and that URL."""
    problem: Any = None
    for url in URLS:
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                # Bounded, because a server may send without end.
                return answer.read(rule_files.MAX_BYTES), url
        except (urllib.error.URLError, TimeoutError, OSError) as error:
            problem = getattr(error, "reason", error)
    raise RuleFileError(f"Disco103 cannot be downloaded ({problem}): get {FILE_NAME} elsewhere and give it with --from FILE")
