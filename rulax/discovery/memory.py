"""What the meta-gradient keeps of each update. All strategies give the same gradient; they differ in memory and time.

* plain: everything, as reverse mode does by itself.
* remat: per update only the agent before it, its batch and its gradient; the rest is computed again on the way back. Keeping
  the gradient saves the second inner backward pass (Kemaev et al. 2025, MixFlow-MG).
* mixed: the gradient function's own derivative is one forward-mode pass through it, so the inner backward pass is not kept.
* both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from rulax.learning.update import INNER_GRADIENT, Learner, Reading, gradient, mean_loss, read, taken_and_embedding, update
from rulax.rules.base import UpdateRule
from rulax.types import Array, Experience, LearnerState, Metrics, PyTree

Update = Callable[[PyTree, LearnerState, Experience, Array], tuple[LearnerState, Metrics]]
STRATEGIES = ("plain", "mixed", "remat", "both")  # from the fastest to the smallest


def make_update(learner: Learner, strategy: str) -> Update:
    """`(rule_params, state, experience, key) -> state, metrics`, which stores what the strategy says."""
    if strategy in ("mixed", "both"):
        if learner.epochs * learner.minibatches > 1:
            raise ValueError(f"memory '{strategy}' differentiates one gradient per update; use plain or remat with several passes")
        learner = learner._replace(gradient=mixed_gradient)

    def one_update(rule_params: PyTree, state: LearnerState, experience: Experience, key: Array) -> tuple[LearnerState, Metrics]:
        return update(learner, rule_params, state, experience, key)

    if strategy in ("remat", "both"):
        kept = jax.checkpoint_policies.save_only_these_names(INNER_GRADIENT)
        return jax.checkpoint(one_update, policy=kept, prevent_cse=False)  # inside a scan there is nothing to merge with
    return one_update


def mixed_gradient(rule: UpdateRule, reading: Reading, targets: PyTree, experience: Experience) -> tuple[PyTree, Metrics]:
    """As `learning.update.gradient`, with a derivative of its own: forward mode over the inner reverse mode.

    For a direction v, v^T d/d(params, targets) of grad L is the derivative of the *whole* gradient of L along v in the
    parameters, because second derivatives commute. Its metrics carry no derivative.
    """

    @jax.custom_vjp
    def inner(params: PyTree, targets: PyTree, experience: Experience) -> tuple[PyTree, Metrics]:
        return gradient(rule, read(params, experience), targets, experience)

    def forward(*inputs: Any) -> tuple[Any, Any]:
        return inner(*inputs), inputs

    def backward(inputs: Any, slopes: Any) -> tuple[PyTree, PyTree, None]:
        params, targets, experience = inputs

        def loss(params: PyTree, targets: PyTree) -> Array:
            return mean_loss(taken_and_embedding(params, experience)[0], rule, targets, experience)[0]

        def whole(params: PyTree) -> tuple[PyTree, PyTree]:
            return jax.grad(loss, argnums=(0, 1))(params, targets)

        return *jax.jvp(whole, (params,), (slopes[0],))[1], None

    inner.defvjp(forward, backward)
    return inner(reading.params, targets, experience)
