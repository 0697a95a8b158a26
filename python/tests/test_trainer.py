import json
import os

import pytest

import lockstep as torch
from lockstep import metrics, nn
from lockstep.utils.data import DataLoader, TensorDataset


def data(n=128):
    torch.manual_seed(3)
    x = torch.rand(n, 2)
    return TensorDataset(x, (x.sum(1) > 1).long())


def model():
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
    return net, torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)


def weights(net):
    return {name: value.tolist() for name, value in net.state_dict().items()}


def test_callbacks_see_every_step_and_epoch():
    net, sgd = model()
    trainer = torch.Trainer(net, sgd, data(), data(32), batch_size=32, epochs=2)
    steps, epochs, updates = [], [], []
    trainer.on_step = lambda report: steps.append((report.step, report.samples))
    trainer.on_epoch = epochs.append
    trainer.on_update = updates.append
    result = trainer.train()
    assert steps == [(i, 32) for i in range(1, 9)]
    assert updates == list(range(1, 9))
    assert [e.epoch for e in epochs] == [1, 2]
    assert result.steps == 8 and result.epochs[1].test.total == 32
    assert "<svg" in result._repr_svg_()


def test_trainer_has_the_bits_of_the_loop():
    examples = data()
    net, sgd = model()
    torch.Trainer(net, sgd, examples, batch_size=32, epochs=1, shards=2).train()
    other, own = model()
    for x, y in DataLoader(examples, batch_size=32, shuffle=True).on(other, shards=2):
        nn.functional.cross_entropy(other(x), y).backward()
        own.step()
    assert weights(net) == weights(other)


def test_a_run_resumes_from_its_folder(tmp_path):
    def run(**options):
        net, sgd = model()
        trainer = torch.Trainer(net, sgd, data(), batch_size=32, epochs=2, recipe={"model": "small"}, **options)
        trainer.train()
        return trainer, net

    _, whole = run()
    run(save_folder=tmp_path / "run", max_steps=3)
    trainer, resumed = run(save_folder=tmp_path / "run", resume=True)
    assert weights(resumed) == weights(whole)
    assert json.loads(trainer.recipe)["model"] == "small" and len(trainer.recipe_hash) >= 8


def test_a_callback_may_stop_and_raise():
    net, sgd = model()
    trainer = torch.Trainer(net, sgd, data(), batch_size=32)
    trainer.on_update = lambda step: trainer.request_stop() if step == 2 else None
    assert trainer.train().stopped
    def fail(step):
        raise KeyError("mine")
    trainer.on_update = fail
    with pytest.raises(KeyError, match="mine"):
        trainer.train()


def test_rates_of_groups_are_those_of_the_optimizer():
    net, sgd = model()
    trainer = torch.Trainer(net, sgd, data(), batch_size=32, epochs=1)
    sgd.param_groups[0]["lr"] = 0.25
    rates = []

    def halve(step):
        sgd.param_groups[0]["lr"] /= 2

    trainer.on_update = halve
    trainer.on_step = lambda report: rates.append(report.learning_rate)
    trainer.train()
    assert rates == [0.25, 0.125, 0.0625, 0.03125] and sgd.param_groups[0]["lr"] == 0.015625


def test_unknown_and_wrong_options_are_errors():
    net, sgd = model()
    with pytest.raises(TypeError, match="batchsize"):
        torch.Trainer(net, sgd, data(), batchsize=3)
    with pytest.raises(torch.Error, match="warm"):
        torch.Trainer(net, sgd, data(), schedule="warm")
    with pytest.raises(TypeError, match="unknown option patence"):
        torch.Trainer(net, sgd, data(), watch={"patence": 3})
    with pytest.raises(TypeError, match="epochs is 'three'"):
        torch.Trainer(net, sgd, data(), epochs="three")


def test_a_loss_and_a_metric_of_python():
    net = nn.Sequential(nn.Linear(2, 1))
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.rand(64, 2)
    pairs = TensorDataset(x, x.sum(1, keepdim=True))
    far = torch.Metric("far", lambda y, t: (y - t).abs(), smaller_is_better=True)
    trainer = torch.Trainer(net, sgd, pairs, pairs, batch_size=16, epochs=5, loss=lambda y, t: ((y - t) ** 2).mean(),
                            metrics=[far, metrics.mean_squared_error()], recipe={"loss": "mse"})
    result = trainer.train()
    errors = [e.metrics["far"] for e in result.epochs]
    assert errors[-1] < errors[0]
    assert torch.evaluate(net, pairs, [far])["far"] == pytest.approx(errors[-1])


def test_forward_returns_a_dict():
    net, sgd = model()

    def forward(batch):
        y = net(batch[0])
        loss = nn.functional.cross_entropy(y, batch[1])
        return {"loss": loss, "outputs": y, "log": {"twice": loss * 2.0}}

    result = torch.Trainer(net, sgd, data(), batch_size=32, epochs=1, forward=forward, recipe={"loss": "own"}).train()
    assert result.epochs[0].log["twice"] == pytest.approx(2 * result.epochs[0].train_loss, rel=1e-5)


def test_evaluate_counts_each_example():
    net, _ = model()
    accuracy = torch.evaluate(net, DataLoader(data(70), batch_size=32))
    assert accuracy.total == 70 and float(accuracy) == accuracy.correct / 70
    found = torch.evaluate(net, data(70), [metrics.accuracy(), metrics.confusion_matrix(2)])
    assert found["accuracy"] == pytest.approx(accuracy.value)
    assert sum(map(sum, found["confusion_matrix"])) == 70


def test_find_learning_rate_puts_everything_back():
    net, sgd = model()
    net(torch.rand(1, 2))
    before = weights(net)
    curve = torch.find_learning_rate(net, sgd, data(), steps=20, first=1e-3, last=10, batch_size=32)
    assert curve.suggestion > 0 and weights(net) == before and "<svg" in curve._repr_svg_()


def test_predictor_gives_results_of_the_model(tmp_path):
    net, _ = model()
    x = torch.rand(4, 2)
    expected = net(x).tolist()
    torch.save_weights(str(tmp_path / "w.safetensors"), net)
    other, _ = model()
    predict = torch.Predictor(other, tmp_path / "w.safetensors")
    assert predict(x).tolist() == expected


def test_export_onnx_writes_a_file(tmp_path):
    net, _ = model()
    torch.export_onnx(tmp_path / "net.onnx", net, torch.rand(3, 2), input_names=["points"])
    assert b"points" in (tmp_path / "net.onnx").read_bytes()


def test_tensorboard_writes_events(tmp_path):
    from lockstep.utils.tensorboard import SummaryWriter
    board = SummaryWriter(tmp_path)
    board.add_scalar("loss", 0.5, 1)
    board.close()
    assert os.path.getsize(board.path) > 0


def test_verify_names_a_missing_tool(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(torch.Error, match="no program lockstep"):
        torch.verify(model="lenet")
