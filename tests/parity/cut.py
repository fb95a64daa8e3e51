"""Cuts the small set in tests/parity/data from the recorded folder: `python -m tests.parity.cut GOLDEN`.

What is kept is valid as it stands: inputs are complete for the results beside them, and where steps or streams are dropped, the
results do not depend on those. Nothing is kept from which the weights of Disco103 could be read off: of what its network puts out
only the policy target, its scalar summary, its memory and (for three steps) y and z, and gradients of its small tensors only.
"""

import argparse
import re
from pathlib import Path

import numpy as np

from tests.parity.arrays import CUT, LEFT_OUT
from tests.shared import DATA

SMALL = {"6_learner_step_f64": 100, "7_meta_gradient_f64": 600}  # numbers in a tensor of which a new value or gradient is kept
STEPS = 3  # of one stream, in case 3
# By file: what to drop, and how to index what is left.
WIDE = r"_logits$(?<!pi_logits)(?<!mu_logits)|_cat|gvo_q/|value_logits_to_scalar|values_from_net"
DUMMIES = r"(estimate_values_\w|gvo_v\w+)/(normalized_)?(qv_adv|q_value|target_q_value|q_target|q_td)$"
DROP = {
    "2_value_utils": rf"{WIDE}|{DUMMIES}",
    "4_optimizer": r"^$",
    "5_agent_net": r"raw_init|out/unroll/(z|q)$",
    "6_learner_step": r"opt_state|params|meta_out/(y|z)$|out/step[23]",  # parameters are judged in float64
    "7_meta_gradient": r"opt_state|target_params|out/n4|out/n2/(meta_grad|value_params|train_metrics)|learner/params",
    "6_learner_step_f64": r"meta_out/(y|z)$",
    "7_meta_gradient_f64": r"out/n4|learner/params",
}
KEEP = {"5_agent_net": {r"in/obs$|out/one_step/": np.s_[:2], r"in/obs_seq|out/unroll/": np.s_[:2, :2]}}
KEEP["7_meta_gradient"] = {r"in/train/": np.s_[:2]}


def read(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as data:
        return dict(data)


def cut_file(stem: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """One file without what is dropped, and without wide results."""
    left = {name: array for name, array in arrays.items() if not re.search(DROP[stem], name)}
    of_weights = r"out/step\d/params/|meta_grad/"
    left = {
        name: array for name, array in left.items() if not re.search(of_weights, name) or array.size <= SMALL.get(stem, array.size)
    }
    for pattern, index in KEEP.get(stem, {}).items():
        left |= {name: array[index] for name, array in left.items() if re.search(pattern, name)}
    return left


def losses(inputs: dict[str, np.ndarray], results: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Case 3 for a few steps of one stream, with the targets of case 1 as inputs.

    The recorded gradient is of the mean over all valid steps; that of the mean over those that are left is larger by their ratio.
    """
    start, stream = most_eventful(inputs["in/discounts"])
    now, with_next = np.s_[start : start + STEPS, stream : stream + 1], np.s_[start : start + STEPS + 1, stream : stream + 1]
    left = {name: inputs[name][with_next] for name in ("in/discounts", "in/rewards", "in/actions", "in/behaviour_logits")}
    left |= {name: array[with_next] for name, array in inputs.items() if name.startswith("in/agent_out/")}
    targets = {"logits": "out/pi", "y": "out/y", "z": "out/z", "q": "out/q_target"}
    left |= {f"in/targets/{name}": inputs[recorded][now] for name, recorded in targets.items()}
    per_step = [name for name in results if re.fullmatch(r"out/(agent_loss(_no_meta)?|component_\w+|mask)", name)]
    left |= {name: results[name][now] for name in per_step}
    mask = results["out/mask"]
    factor = (mask.sum() + 1e-8) / (mask[now].sum() + 1e-8)
    for name in (name for name in results if name.startswith("out/grad_agent_out/")):
        slopes = (results[name][with_next].astype(np.float64) * factor).astype(np.float32)
        slopes[-1] = 0  # the last observation belongs to a step that is dropped
        left[name] = slopes
    return left


def most_eventful(discounts: np.ndarray) -> tuple[int, int]:
    """Where `STEPS` steps of one stream have an end, and both a step that is learned from and one that is not."""
    for stream in range(discounts.shape[1]):
        for start in range(discounts.shape[0] - STEPS):
            mask, ends = discounts[start : start + STEPS, stream], ~discounts[start + 1 : start + STEPS + 1, stream]
            if ends.any() and mask.any() and not mask.all():
                return start, stream
    raise ValueError("no such steps")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.parity.cut", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", type=Path, default=DATA)
    given = parser.parse_args()
    files = {"3_agent_loss": losses(read(given.folder / "1_meta_net.npz"), read(given.folder / "3_agent_loss.npz"))}
    files |= {stem: cut_file(stem, read(given.folder / f"{stem}.npz")) for stem in DROP}
    given.target.mkdir(parents=True, exist_ok=True)
    (given.target / LEFT_OUT).write_text("1\n7w\n")
    for stem, arrays in files.items():
        np.savez_compressed(given.target / f"{stem}.npz", **arrays, **{CUT: np.asarray(True)})


if __name__ == "__main__":
    main()
