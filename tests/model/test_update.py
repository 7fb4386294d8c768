import torch

from gmaflow.model.update import GRUPass, UpdateBlock


@torch.no_grad()
def test_a_pass_is_a_gated_recurrent_unit() -> None:
    """Against one convolution for each gate over (state, inputs, context), as RAFT has it."""
    torch.manual_seed(0)
    unit = GRUPass(hidden_channels=4, context_channels=3, input_channels=5, kernel=(1, 5))
    hidden, context = torch.randn(2, 4, 6, 7), torch.randn(2, 3, 6, 7)
    inputs = torch.randn(2, 5, 6, 7)

    def gate(name: str, state: torch.Tensor) -> torch.Tensor:
        index = "zrq".index(name)
        own = unit.candidate.weight if name == "q" else unit.gates.weight.chunk(2)[index]
        weight = torch.cat([own, unit.context.weight.chunk(3)[index]], dim=1)
        assert unit.context.bias is not None
        bias = unit.context.bias.chunk(3)[index]
        gate_input = torch.cat([state, inputs, context], dim=1)
        return torch.nn.functional.conv2d(gate_input, weight, bias, padding=(0, 2))

    z, r = gate("z", hidden).sigmoid(), gate("r", hidden).sigmoid()
    q = gate("q", r * hidden).tanh()
    expected = (1 - z) * hidden + z * q
    torch.testing.assert_close(unit(hidden, inputs, unit.context(context)), expected)


def test_a_pass_is_initialised_as_one_convolution() -> None:
    torch.manual_seed(0)
    unit = GRUPass(hidden_channels=64, context_channels=64, input_channels=128, kernel=(1, 5))
    whole = torch.nn.Conv2d(256, 64, (1, 5))
    for parameter in unit.parameters():
        assert abs(parameter.std() / whole.weight.std() - 1) < 0.1


@torch.no_grad()
def test_the_state_stays_within_one() -> None:
    torch.manual_seed(0)
    update = UpdateBlock(
        hidden_channels=4,
        context_channels=3,
        input_channels=5,
        kernels=((1, 5), (5, 1)),
        head_channels=8,
    )
    hidden = torch.tanh(torch.randn(1, 4, 6, 7))
    context_terms = update.prepare_context(torch.randn(1, 3, 6, 7))
    for _ in range(20):
        hidden, change = update(hidden, 100 * torch.randn(1, 5, 6, 7), context_terms)
    assert hidden.abs().max() <= 1
    assert change.shape == (1, 2, 6, 7)
