"""Rule files: what is written can be read, and a broken or hostile file is refused in one sentence with nothing installed."""

import io
import json
import pickle
import urllib.error
import zipfile

import jax
import numpy as np
import pytest

from rulax.metanet.network import MetaNetwork
from rulax.metanet.sizes import Sizes
from rulax.rules import pretrained
from rulax.rules.haiku_names import TABLE, to_haiku
from rulax.rules.pretrained import find_disco103, get_disco103, load_rule, save_rule, take_apart
from rulax.rules.registry import make_rule
from rulax.rules.rule_files import RuleFileError
from tests.metanet.environments import SMALL
from tests.shared import weights


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and no other place to look."""
    monkeypatch.setenv("RULAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("RULAX_RULES", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def network():
    return MetaNetwork(jax.random.key(0), SMALL)


@pytest.fixture
def tensors(network):
    return to_haiku("test", take_apart(network))


def same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(np.testing.assert_array_equal, a, b)


# -- reading and writing -------------------------------------------------------------------------------------------------


def test_the_table_is_one_to_one(tensors):
    assert len(tensors) == 2 * len(TABLE) == 42
    full = MetaNetwork(jax.random.key(0), Sizes())
    assert sum(tensor.size for tensor in to_haiku("test", take_apart(full)).values()) == 754_778


@pytest.mark.parametrize("ending", [".npz", ".safetensors"])
def test_what_is_written_is_read(ending, tmp_path, network):
    path = tmp_path / f"rule{ending}"
    save_rule(path, network, SMALL, {"found": "in a test", "licence": "Apache-2.0"})
    loaded = load_rule(path)
    same(loaded.params, network)
    if ending == ".safetensors":
        assert loaded.sizes == SMALL
        assert loaded.about == {"found": "in a test", "licence": "Apache-2.0"}
        recipe = make_rule(str(path), discount=0.9)
        same(recipe.rule.init(jax.random.key(5)), network)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_switches_survive_in_our_format_and_are_refused_in_the_other(tmp_path):
    sizes = Sizes(**{**vars(SMALL), "lifetime": False, "value": False})
    network = MetaNetwork(jax.random.key(0), sizes)
    save_rule(tmp_path / "rule.safetensors", network, sizes)
    assert load_rule(tmp_path / "rule.safetensors").sizes == sizes
    with pytest.raises(RuleFileError, match=r"rule.npz: the reference's format needs 'gate'"):
        save_rule(tmp_path / "rule.npz", network, sizes)
    assert not (tmp_path / "rule.npz").exists()


def test_disco103_is_read_and_written_back_to_the_last_bit(tmp_path):
    loaded = load_rule(weights())
    assert loaded.sizes == Sizes()
    assert "Nature" in loaded.about["found"]
    assert "Apache" in loaded.about["licence"]
    assert loaded.rule_settings.network.value_init == "zero"
    save_rule(tmp_path / "again.safetensors", loaded.params, loaded.sizes, loaded.about)
    assert load_rule(tmp_path / "again.safetensors").rule_settings == loaded.rule_settings
    save_rule(tmp_path / "again.npz", loaded.params, loaded.sizes)
    with np.load(weights(), allow_pickle=False) as old, np.load(tmp_path / "again.npz", allow_pickle=False) as new:
        assert set(old.files) == set(new.files)
        for name in old.files:
            np.testing.assert_array_equal(old[name], new[name])


# -- files that are refused ------------------------------------------------------------------------------------------------


def broken(tmp_path, tensors, **changes):
    path = tmp_path / "broken.npz"
    np.savez(path, **{name: tensor for name, tensor in {**tensors, **changes}.items() if tensor is not None})
    return path


def refused(path, match):
    with pytest.raises(RuleFileError, match=match) as error:
        load_rule(path)
    assert "\n" not in str(error.value)


def test_a_missing_tensor(tmp_path, tensors):
    refused(broken(tmp_path, tensors, **{"lstm/linear_3/w": None}), r"broken.npz: tensor 'lstm/linear_3/w' is missing")
    refused(broken(tmp_path, tensors, **{"lstm/linear/b": None}), r"broken.npz: tensor 'lstm/linear/b' is missing")


def test_a_misshapen_tensor(tmp_path, tensors):
    shapes = {
        "lstm/linear_3/w": (3, 3),
        "lstm/lstm/linear/w": (7,),
        "lstm/sequential/conv1_d/w": (2, 18, 6),
        "lstm/linear_1/b": (2, 2),
    }
    for name, shape in shapes.items():
        told = rf"broken.npz: tensor '{name}' has shape \{str(shape)[:-1]}\), but it must be"
        refused(broken(tmp_path, tensors, **{name: np.zeros(shape, np.float32)}), told)
    refused(broken(tmp_path, tensors, **{"lstm/linear/b": np.zeros((2, 2))}), r"'lstm/linear/b' has shape \(2, 2\)")


def test_a_tensor_too_many(tmp_path, tensors):
    refused(broken(tmp_path, tensors, **{"lstm/other/w": np.zeros(3)}), r"tensor 'lstm/other/w' belongs to no part of a rule")


def test_numbers_that_are_no_floats_or_not_finite(tmp_path, tensors):
    refused(broken(tmp_path, tensors, **{"lstm/linear/b": np.zeros(8, int)}), r"'lstm/linear/b' holds int64 numbers")
    refused(broken(tmp_path, tensors, **{"lstm/linear/b": np.full(8, np.nan)}), r"'lstm/linear/b' .* not finite")


class Trap:
    """Something that must never be unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


def test_an_object_array_is_never_unpickled(tmp_path, tensors):
    path = broken(tmp_path, tensors, **{"lstm/linear/b": np.array([Trap()], object)})
    refused(path, r"'lstm/linear/b' holds Python objects, which are never loaded")


@pytest.mark.parametrize("ending", [".npz", ".safetensors"])
def test_a_pickle_is_never_unpickled(ending, tmp_path):
    path = tmp_path / f"trap{ending}"
    path.write_bytes(pickle.dumps({"lstm/linear/b": Trap()}))
    refused(path, rf"trap{ending} is not a whole {ending} file")


@pytest.mark.parametrize("ending", [".npz", ".safetensors"])
@pytest.mark.parametrize("kept", [0, 10, 500, 3000])
def test_a_truncated_file(ending, kept, tmp_path, network):
    path = tmp_path / f"rule{ending}"
    save_rule(path, network, SMALL)
    path.write_bytes(path.read_bytes()[:kept])
    refused(path, rf"rule{ending} is not a whole {ending} file")


def test_a_header_that_claims_more_than_there_is(tmp_path, tensors):
    path = broken(tmp_path, tensors)
    member = io.BytesIO()
    np.lib.format.write_array_header_1_0(member, {"descr": "<f4", "fortran_order": False, "shape": (10**12, 10**3)})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("huge.npy", member.getvalue())
    refused(path, r"tensor 'huge' claims shape \(1000000000000, 1000\)")


def test_a_damaged_member(tmp_path, tensors):
    path = broken(tmp_path, tensors)
    data = bytearray(path.read_bytes())
    data[2000:2010] = b"\xff" * 10  # zip notices by its checksum
    path.write_bytes(bytes(data))
    refused(path, r"broken.npz")


@pytest.mark.parametrize(
    ("metadata", "match"),
    [
        ({}, "holds tensors but no rule"),
        ({"kind": "rulax.disco"}, "does not state the sizes"),
        ({"kind": "rulax.disco", "sizes": "[]"}, "does not state the sizes"),
        ({"kind": "rulax.disco", "sizes": json.dumps({"hidden": 10**9})}, "'hidden' cannot be 1000000000"),
        ({"kind": "rulax.disco", "sizes": json.dumps({"hidden": True})}, "'hidden' cannot be True"),
        ({"kind": "rulax.disco", "sizes": json.dumps({"action_channels": [1] * 99})}, "'action_channels' cannot be"),
        ({"kind": "rulax.disco", "sizes": json.dumps({"hidden": 9})}, "tensor '.*' is missing"),
    ],
)
def test_metadata_is_not_trusted(metadata, match, tmp_path):
    from safetensors.numpy import save_file

    save_file({"x": np.zeros(3, np.float32)}, tmp_path / "rule.safetensors", metadata)
    refused(tmp_path / "rule.safetensors", match)


def test_other_endings_and_missing_files(tmp_path):
    refused(tmp_path / "rule.txt", "rule.txt is not a rule file")
    refused(tmp_path / "rule.npz", "rule.npz cannot be read: No such file")


# -- Disco103 ----------------------------------------------------------------------------------------------------------------


def test_not_installed(cache):
    with pytest.raises(ValueError, match=r"rule disco103 is not installed: run `rulax rules get disco103`"):
        make_rule("disco103")


def test_install_from_a_file_and_use(cache):
    path = get_disco103(weights())
    assert path == cache / "rules" / "disco_103.npz"
    assert [file.name for file in path.parent.iterdir()] == ["disco_103.npz"]
    recipe = make_rule("disco103", discount=0.99)
    assert recipe.rule.heads(3)["action_prediction"] == (600, True)
    assert jax.tree.leaves(recipe.rule.init(jax.random.key(0)))


def test_the_named_folder_comes_before_the_cache(cache, tmp_path, monkeypatch):
    named = tmp_path / "named"
    named.mkdir()
    (named / "disco_103.npz").write_bytes(b"")
    monkeypatch.setenv("RULAX_RULES", str(named))
    assert find_disco103() == named / "disco_103.npz"


def test_a_file_with_the_wrong_hash_is_not_installed(cache, tmp_path, tensors):
    with pytest.raises(RuleFileError, match=r"broken.npz is not the published Disco103"):
        get_disco103(broken(tmp_path, tensors))
    with pytest.raises(RuleFileError, match=r"nothing.npz cannot be read"):
        get_disco103(tmp_path / "nothing.npz")
    assert not cache.exists()


def test_a_download_that_fails_says_what_to_do(cache, monkeypatch):
    def fail(*_, **__):
        raise urllib.error.URLError("no route to host")

    monkeypatch.setattr(pretrained.urllib.request, "urlopen", fail)
    with pytest.raises(RuleFileError, match=r"cannot be downloaded \(no route to host\): .* --from FILE"):
        get_disco103()
    assert not cache.exists()


def test_a_download_is_checked_and_installed(cache, monkeypatch):
    answers = {"good": weights().read_bytes(), "bad": b"not the file"}
    for kind, data in sorted(answers.items()):
        monkeypatch.setattr(pretrained.urllib.request, "urlopen", lambda *_, data=data, **__: io.BytesIO(data))
        if kind == "bad":
            with pytest.raises(RuleFileError, match="is not the published Disco103"):
                get_disco103()
            assert not cache.exists()
        else:
            assert get_disco103().exists()
            assert find_disco103() == cache / "rules" / "disco_103.npz"


def test_a_folder_that_cannot_be_written(cache, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RULAX_CACHE", str(tmp_path / "file"))
    with pytest.raises(RuleFileError, match=r"cannot be written: .*; set RULAX_CACHE to another folder"):
        get_disco103(weights())
