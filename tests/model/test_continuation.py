"""Laws of the continuation: what it continues exactly, and when it does not change the flow."""

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from gmaflow.model import FlowNetwork, MemoryPlan, NetworkConfig
from gmaflow.model.aggregation import DistanceBias, StoredAttention, StreamedAttention
from gmaflow.model.continuation import (
    MAX_CHANGE,
    Continuation,
    affine_change,
    limit_peaks,
    moments,
)
from gmaflow.model.mixed_product import mixed_product
from tests.conftest import random_images

Make = Callable[[str | NetworkConfig], FlowNetwork]
SIZE = (12, 20)


def affine_flow() -> Tensor:
    """A turning, growing, shearing motion: [1 2 h w]."""
    rows, columns = (torch.arange(n, dtype=torch.float32) for n in SIZE)
    y, x = torch.meshgrid(rows, columns, indexing="ij")
    return torch.stack([1.5 + 0.1 * x - 0.2 * y, -0.7 + 0.15 * x + 0.05 * y])[None]


def visible_cells() -> Tensor:
    """All but a box in a corner: [1 p 1]."""
    visible = torch.ones(SIZE)
    visible[4:10, 11:] = 0
    return visible.view(1, -1, 1)


def test_affine_motion_is_continued_exactly_into_hidden_cells() -> None:
    truth, visible = affine_flow(), visible_cells()
    hidden = visible.view(1, 1, *SIZE) == 0
    wrong = torch.where(hidden, 9.0, truth)  # the flow of hidden cells is wrong
    own = moments(wrong)
    sums = (own * visible).mean(dim=1, keepdim=True).expand_as(own)  # uniform attention
    change = affine_change(sums, own, torch.full_like(own[..., :1], 1e-6))
    actual = wrong + change.mT.unflatten(2, SIZE)
    # The cell's own, wrong flow has a weight of 1e-4.
    torch.testing.assert_close(actual, truth, atol=0.01, rtol=0)
    copied = own[..., 3:5] + affine_change(sums, own, torch.full_like(own[..., :1], 1e6))
    apart = (copied.mT.unflatten(2, SIZE) - truth).norm(dim=1, keepdim=True)[hidden]
    assert apart.mean() > 1  # a large ridge copies the mean, which is wrong here


def by_formula(branch: Continuation, context: Tensor, hidden: Tensor, flow: Tensor) -> Tensor:
    """The formulas of the module's docstring, for one pair in float64: [1 2 h w]."""
    exact = copy.deepcopy(branch).double()
    x, h = context.double(), hidden.double()
    query, key = exact.query_key(torch.cat([x, h], dim=1))[0].flatten(1).T.split(128, dim=1)
    rows, columns = (torch.arange(n, dtype=torch.float64) for n in SIZE)
    place = torch.cartesian_prod(rows, columns).flip(1)
    scores = query @ key.T / 128**0.5 - F.softplus(exact.decay) * torch.cdist(place, place)
    t, r, g = exact.logits(exact.head(h).relu())[0].flatten(1)
    c, ridge = t.sigmoid(), (exact.ridge + r).clamp(-9, 3).exp()
    trusted = scores.softmax(dim=1) * c
    mass = trusted.sum(dim=1)
    weight = trusted + 1e-4 * torch.eye(len(place))
    weight = weight / weight.sum(dim=1, keepdim=True)
    p, f = place / 32, flow[0].double().flatten(1).T
    mu, phi = weight @ p, weight @ f
    apart, differs = p - mu[:, None], f - phi[:, None]
    of_places = torch.einsum("ij,ija,ijb->iab", weight, apart, apart)
    of_flow = torch.einsum("ij,ija,ijb->iab", weight, differs, apart)
    damped = of_places + ridge[:, None, None] * torch.eye(2)
    slope = torch.linalg.solve(damped, (p - mu)[..., None])
    change = (phi + (of_flow @ slope)[..., 0] - f).clamp(-MAX_CHANGE, MAX_CHANGE)
    a, b = exact.evidence
    logit = g + a * (mass + 1e-4).log() + b * (1 + 8 * change.norm(dim=1)).log()
    gate = exact.alpha * (1 - c) * logit.sigmoid()
    return (f + gate[:, None] * change).T.unflatten(1, SIZE)[None]


def test_the_continuation_agrees_with_its_formulas() -> None:
    torch.manual_seed(0)
    branch = Continuation(context_channels=128, hidden_channels=128).requires_grad_(False)
    branch.logits.weight.normal_()
    branch.logits.bias.zero_()  # type: ignore[union-attr]
    branch.evidence.copy_(torch.tensor([0.4, -0.7]))
    branch.alpha.fill_(0.8)
    context, hidden = torch.randn(2, 1, 128, *SIZE)
    flow = affine_flow() + torch.randn(1, 2, *SIZE)
    moved, _ = branch(hidden, flow, branch.attend(context, hidden, store=True))
    assert (moved - flow).abs().max() > 1
    torch.testing.assert_close(
        moved.double(), by_formula(branch, context, hidden, flow), atol=1e-4, rtol=1e-4
    )


def test_without_trust_the_flow_is_unchanged() -> None:
    own = moments(affine_flow() + torch.randn(1, 2, *SIZE))
    change = affine_change(torch.zeros_like(own), own, torch.full_like(own[..., :1], 0.003))
    assert change.abs().max() < 1e-4


def test_a_cell_that_trusts_its_flow_keeps_it_and_learns_from_the_whole_error() -> None:
    branch = Continuation(context_channels=128, hidden_channels=128)
    hidden = torch.randn(1, 128, *SIZE)
    attention = branch.attend(torch.randn(1, 128, *SIZE), hidden, store=True)
    flow = (affine_flow() + torch.randn(1, 2, *SIZE)).requires_grad_()
    bias = branch.logits.bias
    assert bias is not None
    with torch.no_grad():
        branch.alpha.fill_(3.0)  # counts as 1
        bias[2] = 20.0  # the gate itself is open
        for trust, kept in ((12.0, 1.0), (-12.0, 0.0)):
            bias[0] = trust
            with torch.enable_grad():
                moved, continued = branch(hidden, flow, attention)
                (slope,) = torch.autograd.grad(moved.sum(), flow)
            torch.testing.assert_close(slope, torch.full_like(slope, kept), atol=1e-3, rtol=0)
            target = flow if kept else continued.flow
            torch.testing.assert_close(moved, target, atol=1e-2, rtol=0)


def test_changes_are_limited() -> None:
    own = moments(1000 * torch.randn(1, 2, *SIZE))
    sums = own.flip(1)
    assert affine_change(sums, own, torch.full_like(own[..., :1], 1e-4)).abs().max() <= MAX_CHANGE


def test_distances_are_symmetric_and_in_cells() -> None:
    bias = DistanceBias(torch.ones(1), *SIZE)
    rows = -bias.rows(torch.arange(SIZE[0] * SIZE[1]))
    torch.testing.assert_close(rows, rows.T)
    assert rows.diagonal().abs().max() == 0
    assert rows[0, 4 * SIZE[1] + 3] == 5  # four rows down, three columns right


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_streamed_attention_equals_stored_attention(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    branch = Continuation(context_channels=128, hidden_channels=128).requires_grad_(False)
    context, hidden = torch.randn(2, 2, 128, *SIZE, dtype=dtype)
    stored = branch.attend(context, hidden, store=True)
    streamed = branch.attend(context, hidden, store=False)
    assert isinstance(stored, StoredAttention)
    assert isinstance(streamed, StreamedAttention)
    monkeypatch.setattr("gmaflow.model.aggregation.STREAM_BYTES", {"cpu": 20_000, "other": 20_000})
    flow = affine_flow().repeat(2, 1, 1, 1)
    branch.alpha.fill_(1.0)
    actual, expected = (branch(hidden, flow, each)[0] for each in (streamed, stored))
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("plan", [MemoryPlan(), MemoryPlan(store_attention=False)])
def test_gma_affine_starts_exactly_as_gma(plan: MemoryPlan, make_network: Make) -> None:
    gma, affine = make_network("gma"), make_network("gma-affine")
    affine.load_state_dict(gma.state_dict(), strict=False)
    assert affine.continuation is not None
    affine.continuation.alpha.zero_()
    images = random_images(1, 40, 56)
    assert torch.equal(affine(*images, iters=4, plan=plan).flow, gma(*images, iters=4).flow)
    affine.continuation.alpha.fill_(1.0)
    assert not torch.equal(affine(*images, iters=4, plan=plan).flow, gma(*images, iters=4).flow)


def test_continuation_begins_with_the_third_iteration(make_network: Make) -> None:
    network = make_network("gma-affine")
    found = network(*random_images(1, 40, 56), iters=5, all_iterations=True)
    assert (len(found.flows), len(found.continuations)) == (5, 3)


def test_autocast_leaves_the_fit_in_float32(make_network: Make) -> None:
    network = make_network("gma-affine")
    with torch.autocast("cpu", torch.bfloat16):
        found = network(*random_images(1, 40, 56), iters=4, all_iterations=True)
    assert {part.dtype for each in found.continuations for part in each} == {torch.float32}
    assert found.low.dtype == torch.float32


def test_a_half_precision_matrix_times_float32_keeps_the_digits_of_the_values() -> None:
    matrix = torch.rand(2, 1, 30, 30).softmax(-1).bfloat16()
    values = 100 + torch.randn(2, 1, 30, 3)
    actual = mixed_product(matrix, values)
    expected = matrix.double() @ values.double()
    torch.testing.assert_close(actual.double(), expected, rtol=1e-6, atol=0)


def test_a_few_bad_fits_do_not_dominate_the_gradient() -> None:
    gradient = torch.randn(2, 500, 12)
    torch.testing.assert_close(limit_peaks(gradient), gradient)
    gradient[0, 7] = 1e6
    found = limit_peaks(gradient)
    assert found[0, 7].max() < 0.2 * 1e6
    gradient[0, 7] = found[0, 7]
    torch.testing.assert_close(found, gradient)


def test_training_computes_attention_in_float32() -> None:
    branch = Continuation(context_channels=128, hidden_channels=128)
    context, hidden = torch.randn(2, 1, 128, *SIZE, dtype=torch.bfloat16)
    assert branch.train().weigh(context, hidden).dtype == torch.float32
    assert branch.eval().weigh(context, hidden).dtype == torch.bfloat16


def test_pairs_that_are_not_continued_get_the_flow_of_gma(make_network: Make) -> None:
    gma, affine = make_network("gma"), make_network("gma-affine")
    assert affine.continuation is not None
    missing, _ = affine.load_state_dict(gma.state_dict(), strict=False)
    assert all(name.startswith("continuation.") for name in missing)
    with torch.no_grad():
        affine.continuation.alpha.fill_(1.0)
        open_gates = torch.tensor([-2.0, 0.0, 2.0])
        affine.continuation.logits.bias.copy_(open_gates)  # type: ignore[union-attr]
    image1, image2 = random_images(2, 64, 96)

    def flow(network: FlowNetwork, share: Tensor | None = None) -> Tensor:
        first, second = network.encode_frame(image1), network.encode(image2)
        return network.match(first, second, iters=4, continued=share).flow

    found = flow(affine, torch.tensor([0.0, 1.0]).view(2, 1, 1, 1))
    torch.testing.assert_close(found[0], flow(gma)[0])
    torch.testing.assert_close(found[1], flow(affine)[1])
    assert not torch.allclose(found[1], flow(gma)[1], atol=0.01)
