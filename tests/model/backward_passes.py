"""Ways to run backward passes; each must give the gradients that plain torch gives."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Graph:
    """A computation: what it starts from, and what each of its steps gives."""

    leaves: list[Tensor]
    steps: list[Tensor]

    @property
    def loss(self) -> Tensor:
        return torch.stack([step.square().sum() + step.sin().sum() for step in self.steps]).sum()

    def gradients(self) -> list[Tensor]:
        return [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in self.leaves]


Build = Callable[[int], Graph]
"""Makes the graph of a seed."""
Scenario = Callable[[Build], list[Tensor]]


def one_pass(build: Build) -> list[Tensor]:
    graph = build(0)
    graph.loss.backward()
    return graph.gradients()


def two_passes_over_a_retained_graph(build: Build) -> list[Tensor]:
    graph = build(0)
    graph.loss.backward(retain_graph=True)
    graph.loss.backward()
    return graph.gradients()


def each_leaf_then_all(build: Build) -> list[Tensor]:
    graph = build(0)
    loss = graph.loss
    parts = [torch.autograd.grad(loss, leaf, retain_graph=True)[0] for leaf in graph.leaves]
    loss.backward()
    return [*parts, *graph.gradients()]


def each_step_by_itself(build: Build) -> list[Tensor]:
    graph = build(0)
    for step in graph.steps:
        step.square().sum().backward(retain_graph=True)
    return graph.gradients()


def two_graphs_at_once(build: Build) -> list[Tensor]:
    one, other = build(0), build(1)
    parts = torch.autograd.grad(one.loss, one.leaves[-1:], retain_graph=True)
    other.loss.backward(retain_graph=True)
    (one.loss + other.loss).backward()
    return [*parts, *one.gradients(), *other.gradients()]


def a_pass_within_a_pass(build: Build) -> list[Tensor]:
    graph = build(0)
    loss, last = graph.loss, graph.steps[-1].sum()
    inner: list[Tensor] = []

    def ask(_: Tensor) -> None:
        handle.remove()  # the pass within comes here too
        inner.extend(torch.autograd.grad(last, graph.leaves, retain_graph=True))

    handle = graph.steps[0].register_hook(ask)
    loss.backward(retain_graph=True)  # the pass within reads the same graph
    return [*inner, *graph.gradients()]


SCENARIOS: tuple[Scenario, ...] = (
    one_pass,
    two_passes_over_a_retained_graph,
    each_leaf_then_all,
    each_step_by_itself,
    two_graphs_at_once,
    a_pass_within_a_pass,
)
