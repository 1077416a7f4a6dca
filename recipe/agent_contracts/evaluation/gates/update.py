"""Gates of the update: reductions are what they are called, and a step goes the way of its advantage.

Both are self-checks of the installed code on an enumerable policy; G16 also holds the run's own weights against the
declared reduction.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch

from recipe.agent_contracts.evaluation.gates.base import Finding, Gate
from recipe.agent_contracts.update import toy
from recipe.agent_contracts.update.credit import Episode, TurnSpan, credit
from recipe.agent_contracts.update.objectives import Tokens, token_losses
from recipe.agent_contracts.update.record import UpdateRecord
from recipe.agent_contracts.update.reduction import token_weights


class ReductionIdentity(Gate):
    """`episode_sum` with RLOO is the policy gradient exactly, and every row of the run has the declared weight."""

    id, name, evidence = "G16", "reduction_identity", "updates/"
    tolerance = "1e-10 on the enumerable policy, 1e-9 relative on the run's weights"

    def finding(self) -> Finding:
        if not self.run.updates:
            return self._not_measured("the run made no update")
        declared = self.run.contract["credit"]["reduction"]
        other = [update for update in self.run.updates if update.reduction != declared]
        if other:
            return self._failed(f"step {other[0].step}: {other[0].reduction}", f"experiment.yaml declares {declared}")
        error = policy_gradient_error()
        checked = 0
        for update in self.run.updates:
            for row, expected in zip(update.rows, expected_weights(update), strict=True):
                checked += 1
                if not math.isclose(row.weight, expected, rel_tol=1e-9):
                    figure = f"step {update.step}: weight {row.weight:.6g}, {update.reduction} gives {expected:.6g}"
                    return self._failed(figure, row.trajectory_id)
        surrogate = "" if declared == "episode_sum" else " (a surrogate of expected return)"
        figure = f"gradient error {error:.1e}; {checked} weights are those of {declared}{surrogate}"
        return self._passed(figure) if error <= 1e-10 else self._failed(figure, "update/reduction.py")


class GradientSign(Gate):
    """A step raises an episode of positive advantage and lowers one of negative advantage (toy logits)."""

    id, name, evidence = "G18", "gradient_sign", "update/toy.py"
    tolerance = "every episode, both signs"

    def finding(self) -> Finding:
        wrong = [
            f"episode {index}, advantage {sign:+.0f}"
            for index in range(len(toy.EPISODES))
            for sign in (1.0, -1.0)
            if not directional_derivative(index, sign) * sign > 0
        ]
        figure = f"{len(wrong)} of {2 * len(toy.EPISODES)} wrong"
        return self._failed(figure, wrong[0]) if wrong else self._passed(figure)


def expected_weights(update: UpdateRecord) -> list[float]:
    """The weight of each row under the update's own reduction, from the rows' token counts alone."""
    sizes = [row.num_action_tokens for row in update.rows]
    match update.reduction:
        case "length_normalized":
            return [1.0 / (len(sizes) * size) for size in sizes]
        case "token_mean":
            return [1.0 / sum(sizes)] * len(sizes)
        case _:
            # turn_mass_conserving keeps the episode's weight and folds the turns' shares into the advantages.
            return [1.0 / len(sizes)] * len(sizes)


def policy_gradient_error() -> float:
    """Largest difference between the exact gradient of expected return and the mean of RLOO over all groups of two."""
    theta = toy.logits()
    chance = toy.probabilities(theta).detach()
    total = torch.zeros_like(theta)
    for pair in itertools.product(range(len(toy.EPISODES)), repeat=2):
        probability = math.prod(chance[index].item() for index in pair)
        total += probability * _rloo_gradient(theta, list(pair))
    return float((total - toy.exact_gradient(theta)).abs().max())


def _rloo_gradient(theta: torch.Tensor, chosen: list[int]) -> torch.Tensor:
    episodes = [
        Episode(f"g_{n}", "g", toy.RETURNS[index].item(), [TurnSpan("s", len(toy.EPISODES[index]))])
        for n, index in enumerate(chosen)
    ]
    mask = toy.MASK[chosen]
    advantages = torch.zeros_like(mask)
    advantages[mask.bool()] = torch.from_numpy(np.concatenate(credit("rloo", "none", episodes)))
    return -_loss_gradient(theta, chosen, advantages)


def directional_derivative(index: int, advantage: float) -> float:
    """Of an episode's log probability along the step that its own advantage makes."""
    theta = toy.logits()
    (score,) = torch.autograd.grad(toy.log_probs(theta)[index].sum(), theta)
    step = -_loss_gradient(theta, [index], advantage * toy.MASK[index : index + 1])
    return float((step * score).sum())


def _loss_gradient(theta: torch.Tensor, chosen: list[int], advantages: torch.Tensor) -> torch.Tensor:
    log_prob, mask = toy.log_probs(theta)[chosen], toy.MASK[chosen]
    tokens = Tokens(log_prob=log_prob, proximal_log_prob=log_prob.detach(), advantages=advantages, mask=mask)
    losses, _ = token_losses("reinforce_with_kl", tokens)
    (gradient,) = torch.autograd.grad((losses * token_weights("episode_sum", mask)).sum(), theta)
    return gradient
