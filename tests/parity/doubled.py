"""A second folder from a recorded one, with twice the streams: each rollout beside itself.

Everything that the reference pools over streams is a mean, so its results follow without running it: what is per stream is
repeated, what is pooled stays, and where a sum is recorded it doubles (or a stream's share of a mean halves). So other sizes are
tested against the reference's own numbers, and a case that divides by a number of streams it took for granted fails.
"""

import re
from pathlib import Path

import numpy as np

# Which axis has the streams, by file and name; everything else is pooled and stays.
STREAMS = {
    "1_meta_net": {1: r"in/(discounts|rewards|actions|behaviour_logits|agent_out/.*|target_out/.*|ct/(pi|y|z))"
                      r"|dbg/.*|vjp/agent_out/.*"
                      r"|out(_init)?/(pi|y|z|meta_input_emb|(normalized_)?adv|q_target|(normalized_)?q_td|(normalized_)?qv_adv"
                      r"|(target_)?q_value|v_scalar)"},
    "3_agent_loss": {1: r"out/(agent_loss(_no_meta)?|component_.*|mask|grad_agent_out/.*)"},
    "5_agent_net": {0: r"in/obs|out/one_step/.*", 1: r"in/obs_seq|out/unroll/.*"},
    "6_learner_step": {2: r"in/(?!learning_rate).*", 1: r"out/step\d+/meta_out/.*"},
}  # fmt: skip
SCALE = {  # of what is no mean
    "1_meta_net": {2.0: r"in/ct/rnn_hidden|vjp/(scalar|meta_params/.*)"},
    "3_agent_loss": {0.5: r"out/grad_agent_out/.*"},
}


def double(folder: Path, target: Path, files: list[str]) -> None:
    """Write these files (and float64 records, where there are any) anew with twice the streams, and the README as it is."""
    (target / "README.md").write_text((folder / "README.md").read_text())
    for stem in files:
        for path in (folder / f"{stem}.npz", folder / f"{stem}_f64.npz"):
            if path.exists():
                with np.load(path, allow_pickle=False) as data:
                    np.savez(target / path.name, **{name: doubled(stem, name, data[name]) for name in data.files})


def doubled(stem: str, name: str, array: np.ndarray) -> np.ndarray:
    """One array as it would be with twice the streams."""
    for axis, pattern in STREAMS[stem].items():
        if re.fullmatch(pattern, name):
            array = np.concatenate([array, array], axis)
    for factor, pattern in SCALE.get(stem, {}).items():
        if re.fullmatch(pattern, name):
            array = array * np.asarray(factor, array.dtype)
    return array
