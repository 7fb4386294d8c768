"""Both ways at once: the same as a batch that happens to hold every pair in both directions."""

import pytest
import torch
from torch import Tensor, nn

from gmaflow.data import Batch
from gmaflow.errors import TrainingError
from gmaflow.model import FlowNetwork, model_config
from gmaflow.training import StepPlan, TrainStep
from gmaflow.training.setup import make_network
from gmaflow.training.sources import join_directions
from gmaflow.training.step import (
    CONTINUATION_RATE,
    GROWTH_INTERVAL,
    HalfPrecisionCopy,
    LossScale,
    disturb,
    erase_boxes,
    swap_halves,
    weights_in,
)
from tests.training.conftest import (
    assert_same_training,
    farthest,
    same,
    tiny_batch,
    tiny_config,
    tiny_step,
)

CPU = torch.device("cpu")
PLAN = StepPlan(lr=1e-3, iters=2, occluded=True)


def copy_of(step: TrainStep) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in step.state().items()}


@pytest.mark.parametrize("robust", [0.0, 2.0])
def test_a_step_is_torchs_own(robust: float) -> None:
    """The loss, the gradient and its clipping against torch's own."""
    step, batch = tiny_step(robust=robust), tiny_batch()
    network = make_network(tiny_config())
    result = step(batch, PLAN)
    flows = network(batch.image1, batch.image2, iters=2, all_iterations=True).flows
    errors = [(flow - batch.flow).abs() for flow in flows]
    if robust:
        errors = [robust * torch.log(1 + error / robust) for error in errors]
    means = [(batch.valid[:, None] * error).mean() for error in errors]
    loss = 0.8 * means[0] + means[1]
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    assert result.loss.item() == pytest.approx(loss.item(), rel=1e-5)
    assert result.gradient_norm.item() == pytest.approx(norm.item(), rel=1e-4)
    assert norm > 1
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(step.trainable[name].grad, parameter.grad, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("model", ["raft", "gma", "gma-affine"])
def test_iterations_ahead_leave_no_gradient(model: str) -> None:
    step, batch = tiny_step(model=model, iters=4), tiny_batch()
    if step.network.continuation is not None:
        torch.nn.init.constant_(step.network.continuation.alpha, 0.5)
    network = step.network
    found = network(batch.image1, batch.image2, iters=9, all_iterations=True)
    first = network.encode_frame(batch.image1)
    ahead = network.match(
        first, network.encode(batch.image2), iters=4, ahead=5, all_iterations=True
    )
    assert len(ahead.flows) == 4
    for one, other in zip(ahead.flows, found.flows[5:], strict=True):
        torch.testing.assert_close(one, other)
    # The first state acts only through the iterations ahead.
    state = torch.autograd.grad(
        ahead.flow.sum(), [first.hidden, first.features], allow_unused=True, retain_graph=True
    )
    assert state[0] is None
    assert state[1] is not None


def test_a_step_with_iterations_ahead_trains_the_continuation() -> None:
    step = tiny_step(model="gma-affine", iters=4)
    plan = StepPlan(lr=1e-4, iters=4, occluded=True, ahead=4)
    assert step(tiny_batch(), plan).loss.isfinite()
    assert step.network.continuation is not None
    # The attention is computed ahead, and learns all the same.
    gradient = step.network.continuation.query_key.weight.grad
    assert gradient is not None
    assert gradient.abs().max() > 0


def test_disturbed_starts_resemble_the_truth() -> None:
    torch.manual_seed(0)
    rows = torch.linspace(-1, 1, 96)[:, None]
    speed = torch.rand(200, 2, 1, 1).sub(0.5).mul(80)
    flow = speed * (1 + 0.3 * rows).expand(96, 128)
    valid = torch.ones(200, 96, 128, dtype=torch.bool)
    found = disturb(flow, valid, torch.tensor(0.5))
    assert found.shape == (200, 2, 12, 16)
    started = found.abs().amax(dim=(1, 2, 3)) > 0
    assert 0.4 < started.float().mean() < 0.6
    truth = flow[:, :, 4::8, 4::8] / 8
    size = truth.flatten(1).norm(dim=1)
    error = (found - truth).flatten(1).norm(dim=1) / size
    assert 0.05 < error[started].median() < 0.5  # most are near the truth, none is exact
    assert error[started].min() > 1e-3
    assert (error[started] > 1).any()  # some are useless
    assert not disturb(flow, valid, torch.tensor(0.0)).any()
    unknown = torch.full_like(flow, torch.nan)
    assert disturb(unknown, ~valid, torch.tensor(1.0)).isfinite().all()


def test_disturbed_starts_change_what_is_learned() -> None:
    plain, disturbed = (tiny_step(disturbed=share) for share in (0.0, 1.0))
    without = plain(tiny_batch(), PLAN).loss
    not_yet = disturbed(tiny_batch(), PLAN._replace(lr=0.0, disturbed=False)).loss
    assert not_yet == without
    assert disturbed(tiny_batch(), PLAN).loss != without


def test_a_gradient_shorter_than_the_limit_is_left_as_it_is() -> None:
    step = tiny_step(clip=1e4)
    norm = step(tiny_batch(), PLAN).gradient_norm
    assert 1 < norm < 1e4
    gradients = [p.grad for p in step.trainable.values() if p.grad is not None]
    kept = nn.utils.get_total_norm(gradients)
    torch.testing.assert_close(kept, norm)


def test_the_optimizer_is_torchs_own() -> None:
    step = tiny_step()
    plain = make_network(tiny_config())
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-3, weight_decay=1e-4, eps=1e-8)
    for seed in range(3):
        step(tiny_batch(seed=seed), PLAN)
        for name, parameter in plain.named_parameters():
            parameter.grad = step.trainable[name].grad
        optimizer.step()
    assert farthest(weights_in(step.state()), plain.state_dict()) < 1e-6


@pytest.mark.parametrize("ema", [0.9, 0.0])
def test_the_evaluated_weights_are_saved(ema: float) -> None:
    step = tiny_step(ema=ema)
    step(tiny_batch(), PLAN)
    saved = weights_in(step.state())
    with step.evaluating() as network:
        assert same(saved, dict(network.state_dict()))


def test_accumulation_is_the_bigger_batch() -> None:
    whole, parts = tiny_step(batch=4), tiny_step(batch=4, accumulate=2)
    slow = PLAN._replace(lr=1e-5)
    for seed in range(3):
        one = whole(tiny_batch(4, seed=seed), slow)
        two = parts(tiny_batch(4, seed=seed), slow)
        torch.testing.assert_close(one.loss, two.loss)
        torch.testing.assert_close(one.errors, two.errors)
    assert_same_training(whole.state(), parts.state())

    half = tiny_step(batch=2)
    for seed in range(3):
        half(tiny_batch(4, seed=seed).split(2)[0], slow)
    with pytest.raises(AssertionError):
        assert_same_training(whole.state(), half.state())


@pytest.mark.parametrize("model", ["raft-small", "gma"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_step_that_is_not_finite_changes_nothing(model: str, precision: str) -> None:
    step = tiny_step(model=model, ema=0.9, precision=precision)
    step(tiny_batch(), PLAN)
    before = copy_of(step)
    broken = tiny_batch()
    broken.image1[0, 0, 0, 0] = float("nan")
    result = step(broken, PLAN)
    assert result.skipped
    assert (step.skipped.item(), step.skipped_in_row.item()) == (1, 1)
    after = copy_of(step)
    for state in (before, after):
        del state["skipped"], state["skipped_in_row"]
    assert same(before, after)

    assert not step(tiny_batch(), PLAN).skipped
    assert (step.skipped.item(), step.skipped_in_row.item()) == (1, 0)
    assert not same(before, {name: step.state()[name] for name in before})


def test_the_running_mean_follows_its_law() -> None:
    step = tiny_step(ema=0.75)
    expected = {name: value.detach().clone() for name, value in step.network.named_parameters()}
    for seed in range(3):
        step(tiny_batch(seed=seed), PLAN)
        for name, value in step.network.named_parameters():
            expected[name] = 0.75 * expected[name] + 0.25 * value.detach()
    own = {name: value.detach().clone() for name, value in step.network.named_parameters()}
    assert farthest(weights_in(step.state()), expected) < 1e-6
    with step.evaluating() as network:
        assert not network.training
        assert farthest(dict(network.named_parameters()), expected) < 1e-6
    assert step.network.training
    assert same(own, dict(step.network.named_parameters()))


def test_occluded_pixels_bear_no_loss_when_held_back() -> None:
    step, batch = tiny_step(), tiny_batch()
    all_occluded = batch._replace(occluded=torch.ones_like(batch.occluded))
    held_back = PLAN._replace(occluded=False)
    assert step(all_occluded, held_back).loss.item() == 0
    assert step(all_occluded, PLAN).loss.item() > 0


def test_a_state_is_filled_in_place() -> None:
    first, second = tiny_step(ema=0.9), tiny_step(ema=0.9)
    for seed in range(2):
        first(tiny_batch(seed=seed), PLAN)
    places = {name: value.data_ptr() for name, value in second.state().items()}
    second.load_state(copy_of(first))
    assert places == {name: value.data_ptr() for name, value in second.state().items()}
    for step in (first, second):
        step(tiny_batch(seed=5), PLAN)
    assert same(first.state(), second.state())


def test_the_state_of_another_network_is_refused() -> None:
    with pytest.raises(TrainingError, match="another network"):
        tiny_step().load_state(tiny_step(ema=0.5).state())


def test_position_tables_of_content_attention_stay() -> None:
    step = tiny_step(model="gma")
    before = copy_of(step)
    step(tiny_batch(), PLAN)
    after = step.state()
    moved = {n for n in before if n.startswith("network.") and not torch.equal(before[n], after[n])}
    assert moved
    assert not any("offsets" in name for name in moved)
    assert "adam.exp_avg.attention.row_offsets.weight" not in after

    with_position = tiny_step(model="gma-p")
    assert "adam.exp_avg.attention.row_offsets.weight" in with_position.state()


def test_half_precision_finds_a_scale_that_fits() -> None:
    step = tiny_step(precision="fp16")
    assert step.scale.scale.item() == 2**16
    results = [step(tiny_batch(), PLAN) for _ in range(6)]
    tried = int(step.skipped)
    assert 0 < tried < 6
    assert step.scale.scale.item() == 2 ** (16 - tried)
    plain = tiny_step()(tiny_batch(), PLAN)
    result = next(result for result in results if not result.skipped)
    assert result.loss.item() == pytest.approx(plain.loss.item(), rel=0.02)
    assert result.gradient_norm.item() == pytest.approx(plain.gradient_norm.item(), rel=0.1)


def turned(batch: Batch) -> Batch:
    """The batch with its frames exchanged; its truth is some other."""
    return batch._replace(image1=batch.image2, image2=batch.image1, flow=-batch.flow)


@pytest.mark.parametrize("model", ["raft-small", "gma"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_both_ways_trains_the_same_weights(model: str, accumulate: int) -> None:
    pairs = tiny_batch(4, seed=3, size=(32, 40))
    batch = join_directions(pairs, turned(pairs), accumulate)
    learned = []
    for ways in (True, False):
        config = tiny_config(model=model, batch=8, accumulate=accumulate, both_ways=ways)
        torch.manual_seed(0)
        step = TrainStep(FlowNetwork(config.network), config)
        result = step(batch, PLAN)
        learned.append((result, step.state()))
    (result, state), (plain_result, plain) = learned
    torch.testing.assert_close(result.loss, plain_result.loss)
    torch.testing.assert_close(result.errors, plain_result.errors)
    torch.testing.assert_close(result.gradient_norm, plain_result.gradient_norm, rtol=1e-3, atol=0)
    assert state.keys() == plain.keys()
    for name, value in state.items():
        if "exp_avg" not in name:  # Adam's first step is the gradient's sign, wherever that is 0
            continue
        torch.testing.assert_close(value, plain[name], rtol=1e-2, atol=1e-5, msg=name)


def test_exchanging_keeps_the_layout() -> None:
    features = torch.randn(4, 8, 5, 6).to(memory_format=torch.channels_last)
    exchanged = swap_halves(features)
    assert torch.equal(exchanged, features.roll(2, dims=0))
    assert exchanged.is_contiguous(memory_format=torch.channels_last)


def test_a_batch_must_be_of_whole_pairs() -> None:
    with pytest.raises(TrainingError, match=r"batch=6 .* each forward and backward; .* of 4"):
        tiny_config(batch=6, accumulate=2, both_ways=True)


def test_files_have_no_truth_backward() -> None:
    with pytest.raises(TrainingError, match="set:sintel does not have"):
        tiny_config(data="set:sintel", both_ways=True)


def test_it_goes_the_way_of_torchs() -> None:
    ours = LossScale(CPU, enabled=True)
    theirs = torch.amp.GradScaler("cpu")
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    for step in range(3):
        bad = step == 1
        weight.grad = torch.full((1,), float("inf") if bad else 1.0)
        theirs.scale(torch.ones(1))
        theirs.step(optimizer)
        theirs.update()
        ours.update(torch.tensor(bad))
        assert ours.scale.item() == theirs.get_scale()


def test_it_grows_after_many_good_steps() -> None:
    scale = LossScale(CPU, enabled=True)
    scale.good_steps.fill_(GROWTH_INTERVAL - 1)
    scale.update(torch.tensor(False))
    assert (scale.scale.item(), scale.good_steps.item()) == (2**17, 0)


def test_without_half_precision_it_is_one() -> None:
    scale = LossScale(CPU, enabled=False)
    scale.update(torch.tensor(True))
    assert scale.scale.item() == 1


def test_everything_of_the_continuation_learns_at_its_own_rate() -> None:
    step = tiny_step(model="gma-affine", iters=4)
    plan = StepPlan(lr=1e-5, iters=4, occluded=True)
    assert step.network.continuation is not None
    first = step(tiny_batch(), plan)
    # Adam's first step is as long as the rate.
    assert step.network.continuation.alpha.abs().item() == pytest.approx(
        CONTINUATION_RATE * 1e-5, rel=0.01
    )
    for _ in range(2):
        last = step(tiny_batch(), plan)
    for name, parameter in step.network.continuation.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name
    assert last.loss < first.loss


def test_a_share_of_the_pairs_learns_without_the_continuation() -> None:
    shares = []

    def watch(_module: object, arguments: tuple[Tensor, ...]) -> None:
        shares.append(arguments[3])

    step = tiny_step(model="gma-affine", iters=4, continued=0.5)
    assert step.network.continuation is not None
    step.network.continuation.register_forward_pre_hook(watch)
    step(tiny_batch(64), StepPlan(lr=1e-5, iters=4, occluded=True))
    assert all(torch.equal(share, shares[0]) for share in shares)  # in all iterations alike
    assert set(shares[0].unique().tolist()) == {0.0, 1.0}
    assert 0.25 < shares[0].mean() < 0.75


def test_too_few_iterations_for_the_continuation_are_refused() -> None:
    with pytest.raises(TrainingError, match="continues motion from iteration 3 on"):
        tiny_config(model="gma-affine", iters=2)


def test_boxes_are_erased_by_the_mean() -> None:
    torch.manual_seed(0)
    features = torch.randn(400, 3, 16, 20).to(memory_format=torch.channels_last)
    found = erase_boxes(features, 0.5)
    assert found.is_contiguous(memory_format=torch.channels_last)
    changed = (found != features).all(dim=1)
    assert 0.4 < changed.any(dim=(1, 2)).float().mean() < 0.6
    areas = changed.sum(dim=(1, 2))[changed.any(dim=(1, 2))]
    assert 36 <= areas.min() <= areas.max() <= 2 * 144
    mean = features.mean(dim=(2, 3), keepdim=True).expand_as(features)
    torch.testing.assert_close(found, torch.where(changed[:, None], mean, features))
    assert torch.equal(erase_boxes(features, 0.0), features)


@pytest.mark.parametrize("both_ways", [False, True])
def test_erasing_changes_what_is_learned(both_ways: bool) -> None:
    batch = tiny_batch(2, size=(64, 72))
    plain, erased = (
        tiny_step(erase=erase, both_ways=both_ways, crop=(64, 72))(batch, PLAN).loss
        for erase in (0.0, 1.0)
    )
    assert plain != erased


# --- The half-precision copy ---------------------------------------------------------------------


def network_of(model: str) -> FlowNetwork:
    torch.manual_seed(0)
    return FlowNetwork(model_config(model)).train()


def error_of(network: FlowNetwork) -> Tensor:
    images = torch.rand(2, 2, 3, 64, 72, generator=torch.Generator().manual_seed(1))
    found = network(images[0], images[1], iters=3, all_iterations=True)
    return torch.stack([(flow - 2).abs().mean() for flow in found.flows]).sum()


@pytest.mark.parametrize("model", ["gma-p", "gma-affine", "raft-small"])
def test_the_weights_get_the_gradients_of_the_copy(model: str) -> None:
    network = network_of(model)
    expected = torch.autograd.grad(error_of(network), list(network.parameters()), allow_unused=True)

    half = HalfPrecisionCopy(network, torch.bfloat16)
    half.refresh()
    error_of(half.network).backward()
    half.copy_gradients_back()
    for own, plain in zip(network.parameters(), expected, strict=True):
        assert (own.grad is None) == (plain is None)
    found = torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])
    wanted = torch.cat([plain.flatten() for plain in expected if plain is not None])
    assert found.dtype == torch.float32
    assert (found - wanted).norm() < 0.1 * wanted.norm()


def test_refreshing_takes_over_new_weights_and_forgets_gradients() -> None:
    network = network_of("raft-small")
    half = HalfPrecisionCopy(network, torch.bfloat16)
    error_of(half.network).backward()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1)
    half.refresh()
    for own, copied in zip(network.parameters(), half.network.parameters(), strict=True):
        assert torch.equal(copied, own.to(torch.bfloat16))
        assert copied.grad is None


def test_batch_statistics_are_kept_in_float32_by_the_network_itself() -> None:
    network = network_of("raft")
    half = HalfPrecisionCopy(network, torch.bfloat16)
    before = {name: value.clone() for name, value in network.named_buffers()}
    error_of(half.network)
    layers = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
    assert layers
    for layer in layers:
        assert layer.running_mean is not None
        assert layer.running_mean.dtype == torch.float32
    after = dict(network.named_buffers())
    assert all(not torch.equal(after[name], value) for name, value in before.items())


def test_the_continuation_stays_float32_and_is_shared() -> None:
    network = network_of("gma-affine")
    half = HalfPrecisionCopy(network, torch.bfloat16)
    assert half.network.continuation is network.continuation
    assert network.continuation is not None
    assert {p.dtype for p in network.continuation.parameters()} == {torch.float32}
