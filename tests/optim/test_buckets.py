from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lucid_yolo.optim.buckets import make_bucket, matrix_shape, padded, plan_buckets, wide
from lucid_yolo.optim.newton_schulz import newton_schulz

SHAPES = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=25)


@given(shapes=SHAPES, cost=st.sampled_from([0.0, 1e4, 1e6, 1e9]))
def test_every_matrix_is_in_one_stack(shapes: list[tuple[int, int]], cost: float) -> None:
    plan = plan_buckets(tuple(shapes), cost)
    assert sorted(i for stack in plan for i in stack) == list(range(len(shapes)))
    assert all(list(stack) == sorted(stack) for stack in plan)


def test_free_stacks_need_no_padding_and_dear_ones_become_one() -> None:
    shapes = ((8, 16), (64, 64), (8, 16), (64, 72))
    assert sorted(plan_buckets(shapes, 0.0)) == [(0, 2), (1,), (3,)]
    assert plan_buckets(shapes, 1e12) == ((0, 1, 2, 3),)


def test_similar_shapes_unite_first() -> None:
    small, large = (64, 64), (256, 1152)
    plan = plan_buckets((small, (64, 72), large), 3e7)
    assert sorted(plan) == [(0, 1), (2,)]


def test_sides() -> None:
    assert wide((9, 4)) == wide((4, 9)) == (4, 9)
    assert padded((9, 16)) == (16, 16)
    assert matrix_shape(torch.empty(4, 3, 2, 5)) == (4, 30)


def fill(tensors: list[Tensor]) -> Tensor:
    """Flat buffer of the tensors' memory, and a zero."""
    return torch.cat([t.as_strided((t.numel(),), (1,)) for t in tensors] + [torch.zeros(1)])


def expected(tensor: Tensor, gain: float) -> Tensor:
    """One matrix by itself."""
    rows, columns = matrix_shape(tensor)
    matrix = tensor.reshape(1, rows, columns).double()
    matrix = matrix if rows <= columns else matrix.mT
    result = newton_schulz(matrix, steps=5)
    result = result if rows <= columns else result.mT
    return (result * gain * 0.2 * math.sqrt(max(rows, columns))).reshape(tensor.shape).float()


def layouts(tensor: Tensor) -> list[Tensor]:
    """The tensor in several memory layouts."""
    if tensor.ndim == 4:
        return [tensor, tensor.contiguous(memory_format=torch.channels_last)]
    return [tensor, tensor.t().contiguous().t()]


@settings(deadline=None, max_examples=40)
@given(
    shapes=st.lists(
        st.one_of(
            st.tuples(st.integers(1, 12), st.integers(1, 12)),
            st.tuples(st.integers(1, 12), st.integers(1, 6), st.just(3), st.just(3)),
        ),
        min_size=1,
        max_size=5,
    ),
    repeat=st.booleans(),
    layout=st.integers(0, 1),
    before=st.integers(0, 3),
)
def test_a_stack_equals_its_matrices(shapes: list[tuple[int, ...]], repeat: bool, layout: int, before: int) -> None:
    generator = torch.Generator().manual_seed(0)
    if repeat:
        shapes = shapes[:1] * 3
    tensors = [layouts(torch.randn(shape, generator=generator))[layout] for shape in shapes]
    flat = fill([torch.randn(before), *tensors])
    bucket = make_bucket(tensors, start=before, zero=flat.numel() - 1, gain=0.5)
    out = torch.full((flat.numel(),), torch.nan)
    bucket.orthogonalize(flat, out=out, steps=5)
    actual = out[bucket.start : bucket.stop]
    assert actual.numel() == sum(t.numel() for t in tensors)
    assert out.isnan().sum() == flat.numel() - actual.numel()  # the rest of the buffer is left alone
    offset = 0
    for tensor in tensors:
        one = actual[offset : offset + tensor.numel()].as_strided(tensor.shape, tensor.stride())
        torch.testing.assert_close(one, expected(tensor, 0.5), rtol=1e-3, atol=2e-4)
        offset += tensor.numel()


@pytest.mark.parametrize("shape", [(6, 10), (10, 6), (6, 2, 3, 3)])
def test_equal_matrices_are_a_view(shape: tuple[int, ...]) -> None:
    tensors = [torch.randn(shape).contiguous() for _ in range(3)]
    bucket = make_bucket(tensors, start=0, zero=3 * tensors[0].numel(), gain=1.0)
    assert bucket.pack is None
    assert bucket.shape == (3, *matrix_shape(tensors[0]))
