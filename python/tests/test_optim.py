import copy
import math
import pickle

import pytest

import lockstep as torch
import lockstep.nn as nn
from lockstep.optim import lr_scheduler


def quadratic(make):
    w = nn.Parameter(torch.tensor([1.0, -2.0]))
    optimizer = make([w])
    for _ in range(3):
        (w * w).sum().backward()
        optimizer.step()
    return w.tolist()


def test_sgd_with_momentum_is_the_formula():
    w, m = [1.0, -2.0], [0.0, 0.0]
    for _ in range(3):
        m = [0.9 * b + 2 * a for a, b in zip(w, m)]
        w = [a - 0.1 * b for a, b in zip(w, m)]
    assert quadratic(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)) == pytest.approx(w)


@pytest.mark.parametrize("name", ["Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta"])
def test_others_go_downhill_with_their_defaults(name):
    w = quadratic(getattr(torch.optim, name))
    assert abs(w[0]) < 1 and abs(w[1]) < 2


def test_groups_have_rates_that_change():
    a, b = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([{"params": [a]}, {"params": b, "lr": 0.5}], lr=0.1)
    assert [g["lr"] for g in optimizer.param_groups] == [0.1, 0.5]
    (a + b).sum().backward()
    optimizer.step()
    assert a.item() == pytest.approx(0.9) and b.item() == pytest.approx(0.5)
    optimizer.param_groups[0]["lr"] = 0.2
    (a + b).sum().backward()
    optimizer.step()
    assert a.item() == pytest.approx(0.7) and b.item() == pytest.approx(0.0)
    optimizer.param_groups[0]["momentum"] = 0.5
    for gradient in (1, 2):
        ((a + b) * gradient).sum().backward()
        optimizer.step()
    assert a.item() == pytest.approx(0.7 - 0.2 * (1 + 2.5)) and b.item() == pytest.approx(-1.5)


def test_momentum_and_decay_may_change():
    w = nn.Parameter(torch.tensor([1.0, -2.0]))
    optimizer = torch.optim.SGD([w], lr=0.1, momentum=0.9)
    expected, m = [1.0, -2.0], [0.0, 0.0]
    for momentum, decay in ((0.9, 0.0), (0.5, 0.0), (0.5, 0.1), (0.8, 0.1)):
        optimizer.param_groups[0].update(momentum=momentum, weight_decay=decay)
        (w * w).sum().backward()
        optimizer.step()
        m = [momentum * b + 2 * a + decay * a for a, b in zip(expected, m)]
        expected = [a - 0.1 * b for a, b in zip(expected, m)]
    assert w.tolist() == pytest.approx(expected)


def test_a_subclass_steps_with_tensors():
    class Plain(torch.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, dict(lr=lr))

        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        self.state[p]["steps"] = self.state[p].get("steps", 0) + 1
                        p.data.sub_(p.grad * group["lr"])

    w = nn.Parameter(torch.ones(2))
    optimizer = Plain([w], lr=0.25)
    (w * 2).sum().backward()
    optimizer.step()
    assert w.tolist() == [0.5, 0.5] and optimizer.state[w]["steps"] == 1
    optimizer.zero_grad()
    assert w.grad is None


def test_state_continues_a_run():
    def run(stop):
        torch.manual_seed(3)
        w = nn.Parameter(torch.tensor([1.0, -2.0]))
        optimizer = torch.optim.Adam([w], lr=0.1)
        for step in range(6):
            if step == stop:
                state, values = optimizer.state_dict(), w.data.clone()
                w = nn.Parameter(values)
                optimizer = torch.optim.Adam([w], lr=0.7)
                optimizer.load_state_dict(state)
            (w * w).sum().backward()
            optimizer.step()
        return w.tolist()

    assert run(3) == run(None)


def test_lbfgs_solves_a_small_problem():
    w = nn.Parameter(torch.tensor([3.0, -2.0]))
    optimizer = torch.optim.LBFGS([w], line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = ((w - 1) ** 2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert w.tolist() == pytest.approx([1.0, 1.0], abs=1e-4)


def test_clipping():
    w = nn.Parameter(torch.tensor([3.0, 4.0]))
    (w * w).sum().backward()
    norm = nn.utils.clip_grad_norm_([w], 1.0)
    assert norm.item() == pytest.approx(10.0)
    assert w.grad.tolist() == pytest.approx([0.6, 0.8], rel=1e-5)
    nn.utils.clip_grad_value_([w], 0.7)
    assert w.grad.tolist() == pytest.approx([0.6, 0.7], rel=1e-5)


@pytest.mark.parametrize("order", [1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("second", [2.0, math.inf, math.nan])
def test_clipping_of_what_is_not_finite(order, second):
    theirs = pytest.importorskip("torch")

    def clipped(torch):
        parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
        for p, g in zip(parameters, ([3.0, 4.0], [1.0, second])):
            (p * torch.tensor(g)).sum().backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0, order)
        refused = False
        try:
            torch.nn.utils.clip_grad_norm_(parameters, 1.0, order, error_if_nonfinite=True)
        except RuntimeError:
            refused = True
        return norm.item(), refused, [p.grad.tolist() for p in parameters]

    (norm, refused, grads), (norm2, refused2, grads2) = clipped(torch), clipped(theirs)
    assert norm == pytest.approx(norm2, rel=1e-5, nan_ok=True) and refused == refused2
    for ours, others in zip(grads, grads2):
        assert ours == pytest.approx(others, rel=1e-5, nan_ok=True)


@pytest.mark.parametrize("limit", [1.0, 2, 0, -1.0, math.inf, math.nan])
def test_clipping_is_pytorchs_for_any_limit(limit):
    theirs = pytest.importorskip("torch")

    def clipped(torch):
        p, x = torch.nn.Parameter(torch.ones(3, dtype=torch.float64)), torch.ones(3, requires_grad=True)
        (p * torch.tensor([3.0, 0.5, math.nan])).sum().backward()
        (x * torch.tensor([3.0, -0.5, -7.0])).sum().backward()
        memory = x.grad
        torch.nn.utils.clip_grad_value_([p, x], limit)
        values = [p.grad.tolist(), x.grad.tolist(), memory.tolist()]
        p.grad = torch.tensor([3.0, -4.0, 0.0], dtype=torch.float64)
        norm = torch.nn.utils.clip_grad_norm_([p], limit, "inf")
        return [*values, p.grad.tolist(), [norm.item(), norm.dtype == torch.float64]]

    for ours, others in zip(clipped(torch), clipped(theirs)):
        assert ours == pytest.approx(others, rel=1e-9, nan_ok=True)


@pytest.mark.parametrize("rule", ["SGD", "Adam"])
@pytest.mark.parametrize("of", ["optimizer", "net"])
def test_gradients_that_are_set_to_zeros_make_a_step(rule, of):
    theirs = pytest.importorskip("torch")

    def weights(torch):
        net = torch.nn.Linear(2, 1)
        torch.nn.init.ones_(net.weight), torch.nn.init.ones_(net.bias)
        optimizer = getattr(torch.optim, rule)(net.parameters(), lr=0.1, weight_decay=0.5)
        for step in range(3):
            net(torch.ones(1, 2)).sum().backward()
            if step == 1:
                net.bias.grad = None
                {"optimizer": optimizer, "net": net}[of].zero_grad(set_to_none=False)
                assert net.weight.grad.tolist() == [[0.0, 0.0]] and net.bias.grad is None
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return [net.weight.tolist()[0], net.bias.tolist()]

    for ours, others in zip(weights(torch), weights(theirs)):
        assert ours == pytest.approx(others, rel=1e-5)


def test_a_tensors_gradient_is_set_to_zeros_in_place():
    class Plain(torch.optim.Optimizer):
        pass

    x = torch.ones(2, requires_grad=True)
    (x * 3).sum().backward()
    memory = x.grad
    optimizer = Plain([x], {})
    optimizer.zero_grad(set_to_none=False)
    assert memory.tolist() == x.grad.tolist() == [0.0, 0.0]
    optimizer.zero_grad()
    assert x.grad is None


@pytest.mark.parametrize("drop", ["net", "gradients", "optimizer"])
def test_factors_go_with_their_gradients(drop):
    net = nn.Linear(2, 1, bias=False)
    nn.init.ones_(net.weight)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    x = torch.ones(1, 2)
    (net(x) * 10).sum().backward()
    optimizer.clip_grad_norm(0.1)
    with pytest.raises(torch.Error, match="clipped or unscaled already"):
        net(x).sum().backward()
    if drop == "net":
        net.zero_grad()
    elif drop == "gradients":
        net.weight.grad = None
    else:
        optimizer.zero_grad()
    net(x).sum().backward()
    optimizer.step()
    assert net.weight.tolist() == [[0.0, 0.0]]


SCHEDULES = [
    ("StepLR", dict(step_size=7, gamma=0.5)), ("MultiStepLR", dict(milestones=[5, 11, 11], gamma=0.3)),
    ("ExponentialLR", dict(gamma=0.9)), ("CosineAnnealingLR", dict(T_max=20, eta_min=0.01)),
    ("LinearLR", dict(total_iters=8)),
    ("ConstantLR", dict(factor=0.5, total_iters=4)), ("LambdaLR", dict(lr_lambda=lambda t: 1 / (t + 1))),
    ("MultiplicativeLR", dict(lr_lambda=lambda t: 0.95)), ("PolynomialLR", dict(total_iters=30, power=2.0)),
    ("CosineAnnealingWarmRestarts", dict(T_0=6, T_mult=2, eta_min=0.001)),
    ("OneCycleLR", dict(max_lr=0.4, total_steps=60)),
    ("CyclicLR", dict(base_lr=0.01, max_lr=0.1, step_size_up=5, step_size_down=3, mode="triangular2")),
    ("CyclicLR", dict(base_lr=0.01, max_lr=0.1, step_size_up=4, mode="exp_range", gamma=0.9, cycle_momentum=False)),
    ("CosineAnnealingLR", dict(T_max=7, eta_min=0.01)), ("LinearLR", dict(total_iters=0)),
    ("OneCycleLR", dict(max_lr=0.4, total_steps=60, cycle_momentum=False, three_phase=True, anneal_strategy="linear")),
]


@pytest.mark.parametrize("name,options", SCHEDULES)
def test_schedules_have_pytorchs_rates(name, options):
    theirs = pytest.importorskip("torch")

    def rates(module, tensor):
        optimizer = module.optim.SGD([tensor], lr=0.2)
        schedule = getattr(module.optim.lr_scheduler, name)(optimizer, **options)
        all_rates = []
        for _ in range(50):
            optimizer.step()
            all_rates += [optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["momentum"]]
            schedule.step()
        return all_rates

    expected = rates(theirs, theirs.nn.Parameter(theirs.ones(1)))
    assert rates(torch, nn.Parameter(torch.ones(1))) == pytest.approx(expected, rel=1e-9)


def test_plateau_and_sequential_schedules():
    w = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([w], lr=1.0)
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, factor=0.5)
    for value in (1.0, 0.9, 0.9, 0.9, 0.8):
        plateau.step(value)
    assert optimizer.param_groups[0]["lr"] == 0.5
    optimizer = torch.optim.SGD([w], lr=1.0)
    warm = lr_scheduler.LinearLR(optimizer, start_factor=0.5, total_iters=2)
    then = lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    schedule = lr_scheduler.SequentialLR(optimizer, [warm, then], milestones=[2])
    rates = []
    for _ in range(4):
        rates.append(optimizer.param_groups[0]["lr"])
        schedule.step()
    assert rates == pytest.approx([0.5, 0.75, 1.0, 0.5])
    assert math.isclose(schedule.get_last_lr()[0], optimizer.param_groups[0]["lr"])


def new_sgd(lr=0.1, **options):
    return torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=lr, **options)


def rates_of(optimizer, schedules, n):
    rates = []
    for _ in range(n):
        rates.append(optimizer.param_groups[0]["lr"])
        for schedule in schedules:
            schedule.step()
    return pytest.approx(rates)


def test_a_schedule_begins_at_the_rate_that_another_one_left():
    optimizer = new_sgd()
    rates_of(optimizer, [lr_scheduler.StepLR(optimizer, 2, 0.1)], 4)
    assert [0.001, 0.0009, 0.00081] == rates_of(optimizer, [lr_scheduler.ExponentialLR(optimizer, 0.9)], 3)
    optimizer = new_sgd()
    both = lr_scheduler.ConstantLR(optimizer, 0.1, 2), lr_scheduler.ExponentialLR(optimizer, 0.9)
    expected = [0.01, 0.009, 0.081, 0.0729]
    assert expected == rates_of(optimizer, both, 4)
    optimizer = new_sgd()
    both = lr_scheduler.ConstantLR(optimizer, 0.1, 2), lr_scheduler.ExponentialLR(optimizer, 0.9)
    assert expected == rates_of(optimizer, [lr_scheduler.ChainedScheduler(both)], 4)


def test_a_schedule_may_begin_at_a_later_epoch():
    for make in (lambda o: lr_scheduler.StepLR(o, 3, last_epoch=4), lambda o: lr_scheduler.LinearLR(o, last_epoch=4),
                 lambda o: lr_scheduler.CosineAnnealingLR(o, 9, last_epoch=4),
                 lambda o: lr_scheduler.MultiStepLR(o, [5], last_epoch=4)):
        optimizer = new_sgd()
        optimizer.param_groups[0]["initial_lr"] = 1.0
        schedule = make(optimizer)
        assert schedule.last_epoch == 5 and schedule.get_last_lr() == [optimizer.param_groups[0]["lr"]]
        with pytest.raises(KeyError, match="initial_lr"):
            make(new_sgd())
    optimizer = new_sgd()
    assert [0.1 / 3] * 3 == rates_of(optimizer, [lr_scheduler.LinearLR(optimizer, total_iters=0)], 3)


def test_a_state_of_a_schedule_is_a_copy_and_a_refused_one_changes_nothing():
    optimizer = new_sgd(1.0)
    schedule = lr_scheduler.LambdaLR(optimizer, lambda t: 1 / (1 + t))
    state = schedule.state_dict()
    optimizer.param_groups[0]["lr"] = 8.0
    schedule.step()
    schedule.base_lrs[0] = 9.0
    assert state["base_lrs"] == state["_last_lr"] == [1.0]
    schedule.load_state_dict(state)
    schedule.base_lrs[0] = 9.0
    assert state["base_lrs"] == [1.0]
    before = schedule.state_dict(), optimizer.param_groups[0]["lr"]
    for wrong in ({}, {"last_epoch": 3, "_last_lr": [1.0, 2.0]}, 5):
        with pytest.raises((KeyError, ValueError, TypeError)):
            schedule.load_state_dict(wrong)
    with pytest.raises(ZeroDivisionError):
        schedule.step(-1)
    assert (schedule.state_dict(), optimizer.param_groups[0]["lr"]) == before
    cycle = lr_scheduler.OneCycleLR(optimizer, 0.4, total_steps=4)
    for _ in range(4):
        cycle.step()
    before = cycle.state_dict(), dict(optimizer.param_groups[0])
    for _ in range(2):
        with pytest.raises(ValueError, match="Tried to step 5 times"):
            cycle.step()
    assert (cycle.state_dict(), dict(optimizer.param_groups[0])) == before


@pytest.mark.parametrize("make", [
    lambda o: [lr_scheduler.LinearLR(o, 0.1, 1.0, 5), lr_scheduler.StepLR(o, 2, 0.5)],
    lambda o: [lr_scheduler.ConstantLR(o, 0.5, 4)], lambda o: [lr_scheduler.CyclicLR(o, 0.1, 0.5, 3)],
    lambda o: [lr_scheduler.OneCycleLR(o, 0.5, total_steps=20)],
    lambda o: [lr_scheduler.SequentialLR(o, [lr_scheduler.LinearLR(o, 0.5, 1, 2), lr_scheduler.StepLR(o, 2)], [2])]])
@pytest.mark.parametrize("order", ["optimizer, new, schedules", "optimizer, new, schedules backwards",
                                   "new, optimizer, schedules", "new, schedules, optimizer"])
def test_rates_continue_in_any_order_of_loading(make, order):
    first = new_sgd(momentum=0.9)
    schedules = make(first)
    rates_of(first, schedules, 3)
    first.param_groups[0]["lr"] *= 0.7
    state, states = first.state_dict(), [s.state_dict() for s in schedules]
    second = new_sgd(momentum=0.9)
    for what in order.split(", "):
        if what == "optimizer":
            second.load_state_dict(state)
        elif what == "new":
            new = make(second)
        else:
            for schedule, saved in list(zip(new, states))[::-1 if what.endswith("backwards") else 1]:
                schedule.load_state_dict(saved)
    assert second.param_groups[0]["lr"] == first.param_groups[0]["lr"]
    for _ in range(4):
        for all_schedules in (schedules, new):
            for schedule in all_schedules:
                schedule.step()
        assert second.param_groups == [dict(first.param_groups[0], params=second.param_groups[0]["params"])]


def test_a_loaded_state_has_the_base_of_the_next_schedule():
    optimizer = new_sgd(0.1)
    state = new_sgd(0.01).state_dict()
    assert "initial_lr" not in state["param_groups"][0]
    lr_scheduler.StepLR(optimizer, 3)
    optimizer.load_state_dict({"state": {}, "param_groups": state["param_groups"]})
    schedule = lr_scheduler.LambdaLR(optimizer, lambda t: 0.5**t)
    assert schedule.base_lrs == [0.01] and [0.01, 0.005] == rates_of(optimizer, [schedule], 2)


def test_a_schedule_takes_groups_that_are_added():
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    schedule = lr_scheduler.StepLR(optimizer, 1)
    schedule.step()
    optimizer.add_param_group({"params": nn.Parameter(torch.ones(1)), "lr": 1.0})
    schedule.step()
    assert [g["lr"] for g in optimizer.param_groups] == pytest.approx([0.001, 0.1])


def test_refused_options_are_errors():
    w = nn.Parameter(torch.ones(1))
    with pytest.raises(torch.Error, match="maximize=True, expected False"):
        torch.optim.SGD([w], lr=0.1, maximize=True)
    for optimizer in (torch.optim.SGD, torch.optim.Adam, torch.optim.LBFGS):
        with pytest.raises(TypeError, match="a Tensor, expected an nn.Parameter: .* which is a copy"):
            optimizer([torch.ones(1, requires_grad=True)], lr=0.1)
    with pytest.raises(ValueError, match="Invalid lr"):
        torch.optim.Adam([w], lr=-1)


def test_a_group_is_added_between_steps():
    a, b = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    layers = nn.ModuleList([a, b])
    a.weight.data.fill_(1.0)
    b.weight.data.fill_(1.0)
    optimizer = torch.optim.SGD(a.parameters(), lr=0.5, momentum=0.5)
    for step in range(3):
        if step == 1:
            optimizer.add_param_group({"params": b.parameters(), "lr": 0.25})
        (a.weight + b.weight).sum().backward()
        optimizer.step()
        if step == 0:
            b.weight.grad = None
    # Momentum 1, 1.5, 1.75 of a; 1, 1.5 of b.
    assert a.weight.item() == 1 - 0.5 * (1 + 1.5 + 1.75) and b.weight.item() == 1 - 0.25 * (1 + 1.5)
    state = optimizer.state_dict()
    optimizer.load_state_dict(state)
    assert [g["lr"] for g in state["param_groups"]] == [0.5, 0.25] and len(layers) == 2


class SignedSGD(torch.optim.Optimizer):
    """As a program for PyTorch writes one."""

    def __init__(self, params, lr=0.1, momentum=0.5):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["sum"] = torch.zeros_like(p)
                state["sum"].mul_(group["momentum"]).add_(p.grad)
                p.add_(torch.sign(state["sum"]), alpha=-group["lr"])


def test_an_optimizer_of_python_trains():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = SignedSGD(net.parameters(), lr=0.02)
    rates = torch.optim.lr_scheduler.StepLR(optimizer, 20, 0.5)
    x = torch.rand(128, 2)
    y = (x.sum(1) > 1).long()
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        rates.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0] and optimizer.param_groups[0]["lr"] == 0.005
    state = optimizer.state_dict()
    other = SignedSGD(net.parameters())
    other.load_state_dict(state)
    assert other.state[net[0].weight]["sum"].tolist() == optimizer.state[net[0].weight]["sum"].tolist()


@pytest.mark.parametrize("make", [
    lambda o: lr_scheduler.StepLR(o, 2, 0.5), lambda o: lr_scheduler.MultiStepLR(o, [2, 3, 3], 0.5),
    lambda o: lr_scheduler.ExponentialLR(o, 0.5), lambda o: lr_scheduler.CosineAnnealingLR(o, 9, 0.01)])
def test_schedules_continue(make, tmp_path):
    def optimizer():
        return torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.8)

    def rates(schedule, n):
        all_rates = []
        for _ in range(n):
            schedule.step()
            all_rates.append(schedule.optimizer.param_groups[0]["lr"])
        return all_rates

    first = make(optimizer())
    rates(first, 3)
    torch.save({"schedule": first.state_dict(), "optimizer": first.optimizer.state_dict()}, tmp_path / "state")
    state = torch.load(tmp_path / "state")
    second = optimizer()
    second.load_state_dict(state["optimizer"])
    second = make(second)
    assert second.optimizer.param_groups[0]["lr"] == first.optimizer.param_groups[0]["lr"]
    second.load_state_dict(state["schedule"])
    assert second.get_last_lr() == first.get_last_lr() and rates(second, 4) == rates(first, 4)
    # A rate that the program sets, and one of another schedule.
    theirs = pytest.importorskip("torch")
    both = []
    for module in (torch, theirs):
        sgd = module.optim.SGD([module.nn.Parameter(module.ones(1))], lr=0.8)
        a, b = (module.optim.lr_scheduler.ExponentialLR(sgd, 0.9), module.optim.lr_scheduler.CosineAnnealingLR(sgd, 9))
        seen = []
        for step in range(6):
            sgd.step()
            if step == 3:
                sgd.param_groups[0]["lr"] = 2.0
            a.step()
            b.step()
            seen.append(sgd.param_groups[0]["lr"])
        both.append(seen)
    assert both[0] == pytest.approx(both[1], rel=1e-9)


def test_changes_of_groups_count_or_are_errors():
    def made():
        net = nn.ParameterList([torch.ones(1) for _ in range(3)])
        optimizer = torch.optim.SGD([net[0], net[1]], lr=0.1, momentum=0.5)
        step(optimizer)
        return optimizer, net[0], net

    def step(optimizer):
        sum(p.sum() for p in optimizer.param_groups[0]["params"]).backward()
        optimizer.step()

    optimizer, a, net = made()
    optimizer.param_groups[0]["params"].pop()
    with pytest.raises(torch.Error, match="other parameters in param_groups"):
        step(optimizer)
    for begin_anew in (lambda o: o.state.clear(), lambda o: setattr(o, "state", {}),
                       lambda o: o.load_state_dict({"state": {}, "param_groups": o.state_dict()["param_groups"]})):
        optimizer, a, net = made()
        begin_anew(optimizer)
        step(optimizer)
        assert a.item() == pytest.approx(0.8)
    with pytest.raises(torch.Error, match="the library has the states"):
        optimizer.state = {a: 1}
    with pytest.raises(TypeError):
        optimizer.state[a] = {}
    assert not optimizer.state and a not in optimizer.state
    optimizer, a, net = made()
    a.sum().backward()
    optimizer.clip_grad_norm(0.1)
    optimizer.param_groups[0]["momentum"] = 0.9
    optimizer.step()
    assert a.item() == pytest.approx(0.9 - 0.1 * (0.9 + 0.1), abs=1e-6)
    optimizer, a, net = made()
    c = net[2]
    optimizer.add_param_group({"params": [c], "lr": 1.0})
    (c * 3).sum().backward()
    optimizer.zero_grad()
    (c * 1).sum().backward()
    optimizer.step()
    assert c.item() == 0


def seen(optimizer):
    """Return all that a program sees of an optimizer."""
    state = optimizer.state_dict()
    groups = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    return ([[id(p) for p in g["params"]] for g in optimizer.param_groups], copy.deepcopy(groups),
            {k: v.tolist() for k, v in state["state"].items()})


def trained(rule, **options):
    net = nn.ParameterList([torch.ones(2), torch.ones(3), torch.ones(2)])
    optimizer = getattr(torch.optim, rule)([net[0], net[1]], **options)
    (net[0].sum() + net[1].sum()).backward()
    optimizer.step()
    return optimizer, net


@pytest.mark.parametrize("used", [True, False])
def test_a_refused_call_changes_nothing(used):
    optimizer, net = trained("Adam", lr=0.001)
    if not used:
        optimizer = torch.optim.Adam([net[0], net[1]], lr=0.001)
        before = copy.deepcopy([{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups])
    else:
        before = seen(optimizer)
    good = trained("Adam", lr=0.25, betas=(0.5, 0.5))[0].state_dict()
    others = [trained("SGD", lr=0.1, momentum=0.9)[0].state_dict()]
    shapes = copy.deepcopy(good)
    name = next(k for k in shapes["state"] if k.startswith("exp_avg."))
    shapes["state"][name] = torch.ones(5)
    lacks = copy.deepcopy(good)
    del lacks["state"][name]
    for key, value in (("lr", -1.0), ("betas", (0.5, 2.0)), ("maximize", True), ("eps", "x"),
                       ("weight_decay", math.nan)):
        others.append(copy.deepcopy(good))
        others[-1]["param_groups"][0][key] = value
    for state in others + [shapes, lacks, {"param_groups": good["param_groups"]}]:
        with pytest.raises((torch.Error, KeyError, ValueError, TypeError)):
            optimizer.load_state_dict(state)
    for group in ({"params": [net[2], torch.ones(1)]}, {"params": [net[2], net[0]]}, {"params": [net[2], 3]},
                  {"params": [net[2]], "lr": -1.0}, {"params": [net[2]], "betas": (0.9, 1.5)},
                  {"params": [net[2]], "maximize": True}, {"params": []}):
        with pytest.raises((torch.Error, ValueError, TypeError)):
            optimizer.add_param_group(group)
    if used:
        assert seen(optimizer) == before
        optimizer.param_groups[0].update(lr=0.5, eps=-1.0)
        with pytest.raises(torch.Error, match="eps -1"):
            optimizer.step()
        optimizer.param_groups[0].update(lr=0.001, eps=1e-8)
        assert seen(optimizer) == before
    else:
        assert [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups] == before
    optimizer.load_state_dict(good)
    assert optimizer.param_groups[0]["lr"] == 0.25 and optimizer.state_dict()["state"]["steps"] == 1


def test_options_change_without_a_new_engine():
    optimizer, net = trained("SGD", lr=0.5)
    engine, steps = optimizer.engine, optimizer.engine.steps()
    optimizer.param_groups[0].update(momentum=0.5, weight_decay=0.25)
    optimizer.add_param_group({"params": [net[2]], "lr": 0.25, "momentum": 0.75})
    for _ in range(2):
        net[2].sum().backward()
        optimizer.step()
    assert optimizer.engine is engine and engine.steps() == steps + 2
    assert net[2].tolist() == [1 - 0.25 - 0.25 * 1.75] * 2


def test_options_that_change_leave_the_draws_of_dropout():
    def run(changes):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        masks = []
        for step in range(4):
            if changes and step:
                optimizer.param_groups[0]["momentum"] = 0.9 - step / 10
            y = net(torch.ones(1, 4))
            masks.append((y == 0).tolist())
            y.sum().backward()
            optimizer.step()
        return masks

    assert run(True) == run(False)


@pytest.mark.parametrize("rule,options", [
    ("SGD", dict(lr=0.1, momentum=0.9)), ("SGD", dict(lr=0.1, momentum=0.9, dampening=0.5)), ("SGD", dict(lr=0.1)),
    ("Adam", dict(lr=0.1, amsgrad=True)), ("AdamW", dict(lr=0.1)),
    ("RMSprop", dict(lr=0.1, momentum=0.5, centered=True)), ("Adagrad", dict(lr=0.1, initial_accumulator_value=0.5)),
    ("Adadelta", dict(lr=1.0))])
def test_states_of_pytorch_go_on(rule, options, tmp_path):
    theirs = pytest.importorskip("torch")
    values = [[1.0, 2.0], [3.0]]

    def step(module, net, optimizer):
        sum((p * p).sum() for p in net).backward()
        optimizer.step()
        optimizer.zero_grad()

    net = theirs.nn.ParameterList([theirs.nn.Parameter(theirs.tensor(v)) for v in values])
    optimizer = getattr(theirs.optim, rule)(net.parameters(), **options)
    for _ in range(2):
        step(theirs, net, optimizer)
    theirs.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "checkpoint.pt")
    saved = torch.load(tmp_path / "checkpoint.pt")
    ours = nn.ParameterList([torch.zeros(2), torch.zeros(1)])
    ours.load_state_dict(saved["net"])
    second = getattr(torch.optim, rule)(ours.parameters(), lr=0.7)
    second.load_state_dict(saved["optimizer"])
    for _ in range(2):
        step(theirs, net, optimizer)
        step(torch, ours, second)
    for p, q in zip(net, ours):
        assert q.tolist() == pytest.approx(p.tolist(), rel=1e-5)
    wrong = torch.optim.Adadelta(ours.parameters()) if rule != "Adadelta" else torch.optim.SGD(ours.parameters(), lr=1)
    if rule != "SGD" or options.get("momentum"):
        with pytest.raises(torch.Error, match="of PyTorch's"):
            wrong.load_state_dict(saved["optimizer"])


def test_an_optimizer_with_states_is_no_copy():
    optimizer, net = trained("SGD", lr=0.1)
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(torch.Error, match="load_state_dict"):
            copied(optimizer)
    fresh = copy.deepcopy(torch.optim.SGD(net.parameters(), lr=0.1))
    assert fresh.param_groups[0]["lr"] == 0.1


def test_lbfgs_refuses_what_it_does_not_do():
    w = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.LBFGS([w])
    optimizer.param_groups[0]["max_iter"] = 50
    with pytest.raises(torch.Error, match="max_iter changed"):
        optimizer.step(lambda: w.sum())
    with pytest.raises(torch.Error, match="history"):
        optimizer.state_dict()


def test_averages_continue():
    def average(values, model):
        for value in values:
            model[0].weight.data.fill_(value)
            averaged.update_parameters(model)

    model = nn.Sequential(nn.Linear(1, 1))
    averaged = torch.optim.swa_utils.AveragedModel(model)
    average([1.0, 2.0], model)
    state = averaged.state_dict()
    averaged = torch.optim.swa_utils.AveragedModel(model)
    averaged.load_state_dict(state)
    average([6.0], model)
    assert averaged.module[0].weight.item() == 3.0 and averaged.n_averaged == 3


def test_an_average_is_computed_with_a_tensor_of_the_count():
    net = nn.Linear(1, 1, bias=False)
    nn.init.ones_(net.weight)
    model = torch.optim.swa_utils.AveragedModel(net, avg_fn=lambda a, b, n: a + (b - a) / (n.float() + 1))
    for value in (1.0, 2.0, 6.0):
        nn.init.constant_(net.weight, value)
        model.update_parameters(net)
    assert model.module.weight.item() == pytest.approx(3.0)


def test_an_averaged_model_has_the_statistics_of_the_model():
    net = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1))
    averaged = torch.optim.swa_utils.AveragedModel(net)
    both = torch.optim.swa_utils.AveragedModel(net, use_buffers=True)
    for value in (4.0, 8.0):
        net[0].running_mean.fill_(value)
        averaged.update_parameters(net)
        both.update_parameters(net)
    assert averaged.module[0].running_mean.tolist() == [8, 8] and both.module[0].running_mean.tolist() == [6, 6]
    calls = []

    def fails(average, new, count):
        calls.append(count)
        if len(calls) > 1:
            raise KeyError("stop")
        return new * 0

    averaged = torch.optim.swa_utils.AveragedModel(net, avg_fn=fails)
    averaged.update_parameters(net)
    state = {k: v.tolist() for k, v in averaged.state_dict().items()}
    with pytest.raises(KeyError):
        averaged.update_parameters(net)
    with pytest.raises(ValueError, match="other parameters than the copy"):
        averaged.update_parameters(nn.Linear(2, 1))
    assert {k: v.tolist() for k, v in averaged.state_dict().items()} == state
    ema = torch.optim.swa_utils.AveragedModel(net, avg_fn=torch.optim.swa_utils.get_ema_avg_fn(0.75))
    for value in (0.0, 8.0):
        net[1].weight.data.fill_(value)
        ema.update_parameters(net)
    assert ema.module[1].weight.tolist() == [[2.0, 2.0]]


def test_update_bn_computes_the_statistics_of_a_loader():
    net = nn.Sequential(nn.BatchNorm1d(1, momentum=0.3), nn.Dropout(0.5)).eval()
    net[0].running_mean.fill_(50.0)
    batches = [(torch.tensor([[1.0], [3.0]]), None), (torch.tensor([[5.0], [9.0]]), None)]
    torch.optim.swa_utils.update_bn(batches, net)
    assert net[0].running_mean.tolist() == [4.5] and net[0].running_var.tolist() == [5.0]
    assert net[0].momentum == 0.3 and not net.training and net[0].num_batches_tracked == 2
    with pytest.raises(torch.Error):
        torch.optim.swa_utils.update_bn([torch.zeros(2, 7)], net)
    assert net[0].momentum == 0.3 and not net.training


def test_two_optimizers_of_one_gradient_are_an_error():
    shared, head, other = nn.Linear(2, 2), nn.Linear(2, 1), nn.Linear(2, 1)
    first = torch.optim.SGD([*shared.parameters(), *head.parameters()], lr=0.1)
    second = torch.optim.Adam([*shared.parameters(), *other.parameters()], lr=0.1)
    h = shared(torch.ones(3, 2))
    (head(h) + other(h)).sum().backward()
    first.step()
    with pytest.raises(torch.Error, match="another optimizer's step has used and cleared the gradient of parameter"):
        second.step()
    for optimizer, layer in ((first, head), (second, other)):
        layer(shared(torch.ones(3, 2))).sum().backward()
        optimizer.step()


@pytest.mark.parametrize("steps", [0, 2])
def test_a_rate_that_is_edited_in_a_state_counts(steps):
    def weights(lr):
        w = nn.Parameter(torch.tensor([1.0, -2.0]))
        optimizer = torch.optim.Adam([w], lr=0.1)
        for _ in range(steps):
            (w * w).sum().backward()
            optimizer.step()
        state = optimizer.state_dict()
        state["param_groups"][0]["lr"] = lr
        optimizer.load_state_dict(state)
        assert optimizer.param_groups[0]["lr"] == lr
        before = w.tolist()
        (w * w).sum().backward()
        optimizer.step()
        return [abs(a - b) for a, b in zip(w.tolist(), before)]

    small, large = weights(0.1), weights(0.5)
    assert all(math.isclose(5 * a, b, rel_tol=1e-4) for a, b in zip(small, large))


def test_a_wrapper_and_its_base_have_the_same_groups():
    class Wrapper(torch.optim.Optimizer):
        def __init__(self, params, **options):
            super().__init__(params, dict(lr=0.5))
            self.base = torch.optim.SGD(self.param_groups, **options)

        def step(self, closure=None):
            return self.base.step(closure)

    p = nn.Parameter(torch.zeros(1))
    wrapper = Wrapper([p], lr=9.0, momentum=0.5)
    schedule = lr_scheduler.StepLR(wrapper, 1, 0.5)
    steps = []
    for _ in range(3):
        before = p.item()
        p.grad = torch.ones(1)
        wrapper.step()
        steps.append(before - p.item())
        schedule.step()
    assert wrapper.base.param_groups[0] is wrapper.param_groups[0]
    assert steps == [0.5, 0.375, 0.21875]  # the schedule's rates 0.5, 0.25, 0.125 times momenta 1, 1.5, 1.75


def test_groups_are_the_dicts_of_the_program():
    p, q = (nn.Parameter(torch.zeros(1)) for _ in range(2))
    groups = [{"params": p}]
    optimizer = torch.optim.SGD(groups, lr=1.0)
    groups[0]["lr"] = 0.25
    p.grad = torch.ones(1)
    optimizer.step()
    added = {"params": [q]}
    optimizer.add_param_group(added)
    assert p.item() == -0.25 and optimizer.param_groups[1] is added and added["lr"] == 1.0
    refused = {"params": [nn.Parameter(torch.zeros(1))], "lr": -1.0}
    with pytest.raises(torch.Error):
        optimizer.add_param_group(refused)
    assert list(refused) == ["params", "lr"] and len(optimizer.param_groups) == 2
    for wrong in ([p], {"params": {p, q}}):
        with pytest.raises(TypeError, match="must be a dict|ordered collections"):
            torch.optim.SGD([{"params": [nn.Parameter(torch.zeros(1))]}, wrong], lr=1.0)


def test_schedules_call_what_a_program_overrides(capsys):
    class Plateau(lr_scheduler.ReduceLROnPlateau):
        def _reduce_lr(self, epoch):
            self.optimizer.param_groups[0]["lr"] = float(epoch)

        def _reset(self):
            super()._reset()
            self.resets = True

    plateau = Plateau(new_sgd(), patience=0)
    plateau.step(1.0)
    plateau.step(2.0)
    assert plateau.get_last_lr() == [2.0] and plateau.resets

    class Printed(lr_scheduler.StepLR):
        def print_lr(self, is_verbose, group, lr, epoch=None):
            self.printed = getattr(self, "printed", []) + [(group, lr, epoch)]

    printed = Printed(new_sgd(1.0), 1, 0.5)
    printed.step()
    printed.step(3)
    assert printed.printed == [(0, 1.0, None), (0, 0.5, None), (0, 0.125, 3)]
    lr_scheduler.StepLR(new_sgd(1.0), 1, 0.5, verbose=True).step(3)
    assert capsys.readouterr().out == ("Adjusting learning rate of group 0 to 1.0000e+00.\n"
                                       "Epoch 00003: adjusting learning rate of group 0 to 1.2500e-01.\n")

    class Cycle(lr_scheduler.OneCycleLR):
        def _annealing_cos(self, start, end, pct):
            return 7.0

    assert Cycle(new_sgd(momentum=0.5), 0.4, 10).get_last_lr() == [7.0]
    one = lr_scheduler.OneCycleLR(new_sgd(momentum=0.5), 0.4, 10)
    one.anneal_func = lambda start, end, pct: 3.0
    one.step()
    assert one.get_last_lr() == [3.0] and one.optimizer.param_groups[0]["momentum"] == 3.0
    assert "anneal_func" not in one.state_dict()

    class Height(lr_scheduler.CyclicLR):
        def _triangular_scale_fn(self, x):
            return 0.0

    height = Height(new_sgd(momentum=0.5), 0.25, 1.0, 4)
    height.step()
    assert height.get_last_lr() == [0.25]


@pytest.mark.parametrize("name,options", [("CyclicLR", dict(base_lr=0.1, max_lr=0.4, step_size_up=4)),
                                          ("OneCycleLR", dict(max_lr=0.4, total_steps=20))])
def test_a_cycle_of_momentum_may_be_switched_off(name, options):
    schedule = getattr(lr_scheduler, name)(new_sgd(momentum=0.5), **options)
    schedule.step()
    schedule.cycle_momentum = False
    schedule.optimizer.param_groups[0]["momentum"] = 0.25
    schedule.step()
    assert schedule.optimizer.param_groups[0]["momentum"] == 0.25
