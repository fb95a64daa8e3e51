"""A folder of the same format with sizes of one's own, its results by our float64: `python -m tests.parity.recording DIR`.

The cases are run as ever, but write what they would compare. So this shows that reading, naming and comparing depend on no size
of the published folder. It says nothing about the mathematics, which only the reference's arrays can (see doubled.py).
"""

import argparse
import os
from pathlib import Path

import numpy as np

from tests.parity.compare import Line, Recorded

LOOSE = "\n".join(f"| {case} | 0.00e+00 | 0.00e+00 | 1.00e-03 | `any` |" for case in range(1, 6))
HIDDEN, MODEL, HEAD, OBSERVATION = (12, 10), 7, 6, (4, 3, 2)


class Recording(Recorded):
    """Inputs, to which each comparison adds our results as if they had been recorded."""

    def compare(self, line: Line, results: dict, prefix: str = "out/") -> None:
        self.update({prefix + name: np.asarray(ours) for name, ours in results.items()})
        self.seen |= {prefix + name for name in results}

    compare_present = compare


class Maker:
    """Random inputs of the sizes asked for."""

    def __init__(self, actions: int, time: int, streams: int, predictions: int = 600, bins: int = 601):
        self.rng = np.random.default_rng(0)
        self.actions, self.time, self.streams, self.predictions, self.bins = actions, time, streams, predictions, bins

    def normal(self, *shape: int) -> np.ndarray:
        """Numbers that float32 can hold, so that both precisions start from the same."""
        return self.rng.normal(size=shape).astype(np.float32).astype(float)

    def rollout(self, *lead: int) -> dict[str, np.ndarray]:
        shape = (*lead, self.time + 1, self.streams)
        return {
            "in/discounts": self.rng.random(shape) > 0.2,
            "in/rewards": 10 * self.normal(*shape),
            "in/actions": self.rng.integers(0, self.actions, shape).astype(np.int32),
            "in/behaviour_logits": self.normal(*shape, self.actions),
        }

    def meta_network(self) -> Recording:
        shape, actions = (self.time + 1, self.streams), self.actions
        data = self.rollout() | {"in/rnn_hidden": np.tanh(self.normal(128)), "in/rnn_cell": self.normal(128)}
        for reading in ("agent_out", "target_out"):
            data |= {f"in/{reading}/logits": self.normal(*shape, actions), f"in/{reading}/y": self.normal(*shape, self.predictions)}
            per_action = {"z": self.predictions, "q": self.bins, "aux_pi": actions}
            data |= {f"in/{reading}/{name}": self.normal(*shape, actions, size) for name, size in per_action.items()}
        moments = {"moment1": 0.1, "moment2": 0.5, "decay_product": 0.25}
        data |= {f"in/{ema}/{name}": np.asarray(value) for ema in ("adv_ema", "td_ema") for name, value in moments.items()}
        data |= {f"in/{name}/toy/w": self.normal(2, 2) for name in ("toy_params", "toy_target_params")}
        sizes = {"pi": actions, "y": self.predictions, "z": self.predictions}
        data |= {f"in/ct/{name}": self.normal(self.time, self.streams, size) for name, size in sizes.items()}
        return Recording(data | {"in/ct/rnn_hidden": self.normal(128)})

    def agent_network(self) -> Recording:
        data = {"in/obs": self.normal(self.streams, *OBSERVATION), "in/obs_seq": self.normal(3, self.streams, *OBSERVATION)}
        layers = {f"mlp/~_embedding_pass/torso/~/linear_{i}": n for i, n in enumerate(zip((24, 12), HIDDEN, strict=True))}
        layers |= {"mlp/~_head_pass/torso_head/~/linear_0": (HIDDEN[-1], self.actions), "mlp/linear": (HIDDEN[-1], MODEL)}
        layers |= {"mlp/~_head_pass/torso_head_1/~/linear_0": (HIDDEN[-1], self.predictions)}
        layers |= {"mlp/action_cond/linear": (self.actions + MODEL, 4 * MODEL)}
        for name, size in {"mlp": self.predictions, "mlp_1": self.actions, "mlp_2": self.bins}.items():
            layers |= {f"mlp/{name}/~/linear_0": (MODEL, HEAD), f"mlp/{name}/~/linear_1": (HEAD, size)}
        for module, (inputs, outputs) in layers.items():
            data |= {f"in/params/{module}/w": self.normal(inputs, outputs) / 4, f"in/params/{module}/b": self.normal(outputs) / 4}
        return Recording(data)

    def learner_steps(self, updates: int = 2) -> Recording:
        seen = self.normal(updates, self.time + 1, self.streams, *OBSERVATION)
        return Recording(self.rollout(updates) | {"in/observations": seen, "in/learning_rate": np.asarray(0.01)})


def record(folder: Path, weights: Path, make: Maker) -> None:
    """Write cases 1, 3, 5 and 6, and the float64 record of 6."""
    from rulax.rules.pretrained import load_rule
    from tests.parity import learning, parts

    rule, line = load_rule(weights), Line("", "float64", 0.0)
    files = {"1_meta_net": make.meta_network(), "3_agent_loss": Recording({}), "5_agent_net": make.agent_network()}
    files["6_learner_step"] = make.learner_steps()
    meta, loss, agent, steps = files.values()
    parts.meta_network(meta, rule, line, line)
    parts.agent_losses(loss, meta, rule, line)
    parts.agent_network(agent, line)
    learning.learner_steps(steps, agent, steps, rule, "float32")  # with moments, which the float64 record then leaves out
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text(LOOSE + "\n")
    double = {name: array for name, array in steps.items() if name.startswith("out/") and "/opt_state/" not in name}
    np.savez(folder / "6_learner_step_f64.npz", **double)
    for stem, arrays in files.items():
        np.savez(folder / f"{stem}.npz", **{name: single(array) for name, array in arrays.items()})


def single(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype == np.float64 else array


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.parity.recording", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--weights", type=Path, required=True)
    for name, default in (("actions", 5), ("time", 6), ("streams", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    os.environ["JAX_ENABLE_X64"] = "true"
    record(given.folder, given.weights, Maker(given.actions, given.time, given.streams))


if __name__ == "__main__":
    main()
