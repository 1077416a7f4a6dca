"""The null update: returns stay in their group, every permutation is as likely, and the gradient has no direction."""

import itertools
from collections import Counter, defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from recipe.agent_contracts.update.credit import Episode, TurnSpan, credit
from recipe.agent_contracts.update.objectives import Tokens, token_losses
from recipe.agent_contracts.update.reduction import token_weights
from recipe.agent_contracts.update.shuffling import permutation, shuffled
from recipe.agent_contracts.update.toy import EPISODES, MASK, RETURNS, log_probs, logits

batches = st.lists(st.lists(st.floats(-1, 1), min_size=2, max_size=8), min_size=1, max_size=4).map(
    lambda groups: [
        Episode(f"{group}_{index}", str(group), value, [TurnSpan("s", 1)])
        for group, values in enumerate(groups)
        for index, value in enumerate(values)
    ]
)


@given(batches, st.integers(0, 100), st.integers(1, 100))
def test_each_group_keeps_its_returns_and_each_episode_names_whose_it_got(episodes, seed, step):
    credited, return_of = shuffled(episodes, seed, step)
    before, after, own = defaultdict(Counter), defaultdict(Counter), {e.trajectory_id: e for e in episodes}
    for episode, given_to, source in zip(episodes, credited, return_of, strict=True):
        before[episode.group_id][episode.episode_return] += 1
        after[episode.group_id][given_to.episode_return] += 1
        assert (given_to.trajectory_id, given_to.turns) == (episode.trajectory_id, episode.turns)
        assert own[source].group_id == episode.group_id
        assert own[source].episode_return == given_to.episode_return
    assert before == after
    assert sorted(return_of) == sorted(own), "each return is given away once"


@given(batches, st.randoms())
def test_the_order_of_the_batch_does_not_matter(episodes, random):
    mixed = random.sample(episodes, len(episodes))
    assert {e.trajectory_id: e for e in shuffled(episodes, 1, 2)[0]} == {
        e.trajectory_id: e for e in shuffled(mixed, 1, 2)[0]
    }


def test_seed_step_and_group_each_shuffle_anew_and_again_alike():
    drawn = {words: permutation(8, *words) for words in itertools.product((1, 2), (1, 2), ("g", "h"))}
    assert len({tuple(order) for order in drawn.values()}) == len(drawn)
    assert drawn[1, 2, "g"] == permutation(8, 1, 2, "g")


def test_every_permutation_has_the_same_chance():
    """Also those with fixed points: a derangement would itself tell something about the right episode."""
    counts = Counter(tuple(permutation(3, 7, step, "g")) for step in range(6000))
    assert len(counts) == 6
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3


def gradient(theta, chosen, returns, estimator, scale):
    """Minus the gradient of the loss of one group, credited with the given returns."""
    episodes = [
        Episode(f"g_{n}", "g", value, [TurnSpan(f"s{n}", 1) for _ in EPISODES[index]])
        for n, (index, value) in enumerate(zip(chosen, returns, strict=True))
    ]
    mask, log_prob = MASK[list(chosen)], log_probs(theta)[list(chosen)]
    advantages = torch.zeros_like(mask)
    advantages[mask.bool()] = torch.from_numpy(np.concatenate(credit(estimator, scale, episodes)))
    tokens = Tokens(log_prob=log_prob, proximal_log_prob=log_prob.detach(), advantages=advantages, mask=mask)
    losses, _ = token_losses("reinforce_with_kl", tokens)
    (found,) = torch.autograd.grad((losses * token_weights("episode_sum", mask)).sum(), theta)
    return -found


def mean_gradient(chosen, estimator="rloo", scale="none"):
    """Over all permutations of the group's returns: exact, whatever group was sampled."""
    theta = logits()
    orders = list(itertools.permutations([RETURNS[index].item() for index in chosen]))
    return sum(gradient(theta, chosen, order, estimator, scale) for order in orders) / len(orders)


@pytest.mark.parametrize(("estimator", "scale"), [("rloo", "none"), ("dr_grpo", "none"), ("grpo", "std")])
@pytest.mark.parametrize("size", [2, 3])
def test_over_all_permutations_the_update_has_no_direction(size, estimator, scale):
    theta = logits()
    for chosen in itertools.combinations(range(len(EPISODES)), size):
        plain = gradient(theta, chosen, [RETURNS[index].item() for index in chosen], estimator, scale)
        assert plain.abs().max() > 1e-3, "without the shuffle it has one"
        assert mean_gradient(chosen, estimator, scale).abs().max() < 1e-12


def test_discounted_step_returns_keep_a_direction():
    """GiGPO discounts by the episode's own length, which no permutation of returns moves: hence it is refused."""
    group = [Episode("g_0", "g", 1.0, [TurnSpan("a", 1)]), Episode("g_1", "g", 1.0, [TurnSpan("a", 1)] * 2)]
    advantages = credit("gigpo", "none", group)
    assert [values[0] for values in advantages] != pytest.approx([0.0, 0.0])
