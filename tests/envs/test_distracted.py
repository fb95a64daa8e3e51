"""Random pixels beside an observation: what was there stays, what is new means nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.envs.catch import Catch
from rulax.envs.distracted import with_distractors
from rulax.envs.registry import make
from tests.commands.bad_lines import refused_in_one_sentence

KEY = jax.random.key(0)


@pytest.mark.parametrize(("name", "shape", "own"), [("catch", (10, 5, 2), 1), ("cartpole", (8,), 4)])
def test_the_game_is_the_same_and_lights_are_lit_as_often_as_asked(name, shape, own):
    environment, plain = make(name, with_distractors=0.3), make(name)
    task = environment.default_task()
    assert environment.observation.shape == shape

    def shown(key):
        state, first = environment.reset(task, key)
        later = jax.random.fold_in(key, 1)
        _, transition = environment.step(task, state, jnp.int32(1), later)
        before, start = plain.reset(task, jax.random.split(key)[0])
        after = plain.step(task, before, jnp.int32(1), jax.random.split(later)[0])[1]
        return first, transition, start, after

    first, transition, start, after = jax.jit(jax.vmap(shown))(jax.random.split(KEY, 500))
    np.testing.assert_array_equal(first[..., :own], start)
    np.testing.assert_allclose(transition.observation[..., :own], after.observation, rtol=1e-6)
    np.testing.assert_allclose(transition.reward, after.reward)
    lights = np.stack([first[..., own:], transition.observation[..., own:]])
    assert set(np.unique(lights)) == {0.0, 1.0}
    per_place = lights.reshape(1000, -1).mean(0)
    assert np.abs(per_place - 0.3).max() < 4.5 * np.sqrt(0.3 * 0.7 / 1000)  # every place for itself
    assert (lights[0] != lights[1]).mean() == pytest.approx(2 * 0.3 * 0.7, abs=0.06)  # anew at every step


def test_the_next_episode_has_lights_of_its_own():
    environment = with_distractors(Catch(), 0.5)
    task = environment.default_task()
    state, first = environment.reset(task, KEY)
    _, again = environment.next_episode(task, state, jax.random.key(1))
    assert (np.asarray(first[..., 1]) != np.asarray(again[..., 1])).any()


def test_pixels_of_bytes_are_lit_as_bytes():
    class Bytes(Catch):
        observation = jax.ShapeDtypeStruct((10, 5, 1), jnp.uint8)

        def reset(self, task, key):
            state, shown = super().reset(task, key)
            return state, (255 * shown).astype(jnp.uint8)

    _, shown = with_distractors(Bytes(), 0.5).reset(Catch().default_task(), KEY)
    assert shown.dtype == jnp.uint8
    assert set(np.unique(shown[..., 1])) == {0, 255}


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ("catch:with_distractors=0", "above 0 and below 1, not 0"),
        ("catch:with_distractors=much", "with_distractors expects a number, not 'much'"),
        ("catch:with_noise=2,with_distractors=2", "above 0 and below 1, not 2"),
        ("CartPole-v1:with_distractors=0.3", "not on the host"),
    ],
)
def test_what_cannot_be_distracted_gets_one_sentence(environment, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    refused_in_one_sentence(f"train {environment} --rule mfec", words, tmp_path, capsys)


def test_dictionaries_are_refused():
    with pytest.raises(ValueError, match="one vector or one image"):
        with_distractors(make("catch", with_noise=2), 0.3)
