import pytest

import lockstep as torch
from lockstep import nn


def draw():
    """Numbers that all ways of drawing give."""
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    return [torch.rand(2).tolist(), torch.randint(0, 1000, (2,)).tolist(), net(torch.ones(1, 2)).tolist(),
            net[0].weight.tolist()]


def test_a_state_brings_the_draws_back():
    torch.manual_seed(5)
    draw()
    state = torch.get_rng_state()
    assert state.dtype == torch.uint8 and torch.initial_seed() == 5
    expected = [draw(), draw()]
    torch.set_rng_state(state)
    assert [draw(), draw()] == expected and expected[0] != expected[1]
    torch.manual_seed(6)
    draw()
    torch.set_rng_state(state.clone())
    assert torch.initial_seed() == 5 and [draw(), draw()] == expected


# Steps of optimizers count, too.
def test_a_state_between_steps():
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step():
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()

    step()
    state = torch.get_rng_state()
    expected = draw()
    for _ in range(3):
        step()
    torch.set_rng_state(state)
    assert draw() == expected


def test_fork_rng_leaves_the_stream():
    torch.manual_seed(3)
    expected = [draw() for _ in range(2)]
    torch.manual_seed(3)
    found = [draw()]
    with torch.random.fork_rng():
        torch.manual_seed(9)
        draw()
    found.append(draw())
    assert found == expected
    with pytest.raises(ZeroDivisionError):
        with torch.random.fork_rng():
            torch.manual_seed(9)
            1 / 0
    assert torch.initial_seed() == 3
    with torch.random.fork_rng(enabled=False):
        torch.manual_seed(9)
    assert torch.initial_seed() == 9


def test_seed_is_the_systems():
    assert torch.seed() == torch.initial_seed() != torch.seed()


def test_a_generators_state():
    g = torch.Generator().manual_seed(4)
    torch.rand(2, generator=g)
    state = g.get_state()
    x = torch.rand(2, generator=g)
    g.manual_seed(0)
    g.set_state(state)
    assert torch.equal(torch.rand(2, generator=g), x) and g.initial_seed() == 4


def test_what_is_no_state_is_refused():
    for state in (torch.zeros(3, dtype=torch.uint8), [1, 2], torch.rand(24)):
        with pytest.raises((TypeError, ValueError)):
            torch.set_rng_state(state)
    with pytest.raises(TypeError, match="expected a result of get_state"):
        torch.Generator().set_state(torch.zeros(3, dtype=torch.uint8))
