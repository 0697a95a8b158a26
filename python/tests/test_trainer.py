import gc
import json
import os
import signal
import subprocess
import threading
import time
import weakref

import pytest

import lockstep as torch
from lockstep import metrics, nn
from lockstep import distributed, multiprocessing
from lockstep.utils.data import (BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler, Subset,
                                 SubsetRandomSampler, TensorDataset, default_collate)


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


def test_a_last_batch_that_batch_norm_refuses_is_an_error_at_the_start():
    def job(**options):
        net = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
        sgd = torch.optim.SGD(net.parameters(), lr=0.5)
        trainer = torch.Trainer(net, sgd, data(33), batch_size=32, epochs=2, shards=1, **options)
        steps = []
        trainer.on_step = lambda report: steps.append(report.samples)
        return trainer, steps

    trainer, steps = job()
    with pytest.raises(torch.Error, match="the last batch of an epoch has 1 sample, so batch norm 1 would have 1 value "
                                          "per channel, expected more than 1: set drop_last"):
        trainer.train()
    assert steps == []
    trainer, steps = job(drop_last=True)
    trainer.train()
    assert steps == [32, 32]


def test_trainer_has_the_bits_of_the_loop():
    examples = data()
    net, sgd = model()
    torch.Trainer(net, sgd, examples, batch_size=32, epochs=1, shards=2).train()
    other, own = model()
    for x, y in DataLoader(examples, batch_size=32, shuffle=True).on(other, shards=2):
        nn.functional.cross_entropy(other(x), y).backward()
        own.step()
    assert weights(net) == weights(other)


def test_an_audit_trains_steps_of_a_receipt(tmp_path):
    def trainer(examples, **options):
        net, sgd = model()
        return torch.Trainer(net, sgd, examples, batch_size=32, epochs=2, **options)

    receipt = tmp_path / "receipt.json"
    assert trainer(data(), receipt={"file": receipt, "every": 2}).train().failures == []
    equal = []
    result = trainer(data()).audit(receipt, steps=(3, 6), on_equal=equal.append)
    assert (result.steps, result.trained, result.final_weights) == (4, 6, False) and equal
    other = data()
    other.tensors[0][5, 1] += 1
    with pytest.raises(torch.AuditFailure, match="train example 5"):
        trainer(other).audit(receipt)
    with pytest.raises(torch.AuditFailure, match="label_smoothing"):
        trainer(data(), label_smoothing=0.1).audit(receipt)
    with pytest.raises(torch.Error, match="not signed|no signature"):
        key = tmp_path / "public.pem"
        key.write_text("-----BEGIN PUBLIC KEY-----\n"
                       "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n")
        trainer(data()).audit(receipt, public_key=key)
    with pytest.raises(TypeError, match="receipt: unknown option evry"):
        trainer(data(), receipt={"file": receipt, "evry": 2})


def test_mixup_has_the_bits_of_the_loop():
    mix = torch.transforms.MixUp(alpha=0.4, num_classes=2)
    net, sgd = model()
    torch.Trainer(net, sgd, data(), batch_size=32, epochs=1, shards=2, batch_transform=mix,
                  recipe={"mixup": 0.4}).train()
    other, own = model()
    loader = DataLoader(data(), batch_size=32, shuffle=True, collate_fn=lambda items: mix(*default_collate(items)))
    for x, chances in loader.on(other, shards=2):
        nn.functional.cross_entropy(other(x), chances).backward()
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


def test_resume_continues_a_folder_or_starts(tmp_path):
    def trainer(**options):
        net, sgd = model()
        return net, torch.Trainer(net, sgd, data(), batch_size=32, epochs=2, recipe={"model": "small"}, **options)

    whole, first = trainer()
    first.train()
    _, part = trainer(save_folder=tmp_path, max_steps=3)
    assert part.resume_or_start() is None
    part.train()
    net, resumed = trainer()
    assert resumed.resume(tmp_path).name == "step-00000003"
    assert resumed.train().steps == 8 and weights(net) == weights(whole)
    net, resumed = trainer(save_folder=tmp_path)
    assert resumed.resume_or_start().parent == tmp_path
    resumed.train()
    assert weights(net) == weights(whole)
    net, sgd = model()
    with pytest.raises(torch.Error, match="batch_size"):
        torch.Trainer(net, sgd, data(), batch_size=16, epochs=2, recipe={"model": "small"}).resume(tmp_path)


def test_logs_are_written(tmp_path):
    net, sgd = model()
    result = torch.Trainer(net, sgd, data(), data(32), batch_size=32, epochs=1, log_file=tmp_path / "log.jsonl",
                           tensorboard={"folder": tmp_path / "board", "histogram_every": 2}).train()
    assert result.failures == []
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3, 4]
    [events] = (tmp_path / "board").iterdir()
    assert b"gradients/" in events.read_bytes()


def in_rank(rank, folder):
    distributed.init_process_group("gloo", rank=rank, world_size=2, timeout=20)
    net, sgd = model()
    result = torch.Trainer(net, sgd, data(), data(30), batch_size=32, epochs=1, shards=4).train()
    (folder / str(rank)).write_text(f"{torch.weights_sha256(net)} {result.epochs[0].test.total}")
    distributed.destroy_process_group()


def test_two_ranks_have_the_bits_of_one_process(tmp_path):
    net, sgd = model()
    torch.Trainer(net, sgd, data(), batch_size=32, epochs=1, shards=4).train()
    multiprocessing.spawn(in_rank, (tmp_path,), nprocs=2)
    assert {(tmp_path / rank).read_text() for rank in "01"} == {f"{torch.weights_sha256(net)} 30"}


class Slow(Dataset):
    """Its batches take a minute."""

    seconds = 0.0

    def __len__(self):
        return 512

    def __getitem__(self, i):
        time.sleep(self.seconds)
        return torch.full((2,), i / 512), i % 2


@pytest.mark.parametrize("task", ["train", "evaluate", "find_learning_rate", "step"])
def test_ctrl_c_ends_training(task):
    net, sgd = model()
    slow = Slow()
    slow.seconds = 0.0 if task == "step" else 0.1
    trainer = torch.Trainer(net, sgd, slow, batch_size=512, epochs=1 << 30)

    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.3, interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        if task == "evaluate":
            torch.evaluate(net, slow)
        elif task == "find_learning_rate":
            torch.find_learning_rate(net, sgd, slow, batch_size=512)
        else:
            trainer.train()
    # Everything goes on.
    slow.seconds = 0.0
    sgd.zero_grad()
    torch.nn.functional.cross_entropy(net(torch.rand(4, 2)), torch.tensor([0, 1, 0, 1])).backward()
    sgd.step()
    trainer.on_update = lambda step: trainer.request_stop()
    assert trainer.train().stopped
    assert torch.evaluate(net, slow).total == 512


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


@pytest.mark.parametrize("schedule", ["cosine", {"lr_lambda": lambda step: float(step < 3)}])
@pytest.mark.parametrize("changed,expected", [([0, 1], [0.05, 0.05]), ([0], [0.05, 0.1]), ([1], [0.2, 0.05])])
def test_rates_that_are_set_behind_a_schedule_hold(changed, expected, schedule):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
    sgd = torch.optim.SGD([{"params": net[0].parameters(), "lr": 0.2}, {"params": net[2].parameters()}], lr=0.1)
    torch.Trainer(net, sgd, data(), batch_size=32, epochs=1, schedule=schedule).train()
    for group in changed:
        sgd.param_groups[group]["lr"] = 0.05
    rates = []
    trainer = torch.Trainer(net, sgd, data(), batch_size=32, epochs=1)
    trainer.on_update = lambda step: rates.append([group["lr"] for group in sgd.param_groups])
    trainer.train()
    assert rates == [expected] * 4


@pytest.mark.parametrize("change", [
    lambda net: None, lambda net: net.eval(), lambda net: net[1].eval(), lambda net: setattr(net[1], "momentum", 0.9),
    lambda net: setattr(net[3], "p", 0.9), lambda net: setattr(net[2], "scale", 3.0),
    lambda net: net[0].register_forward_hook(lambda module, inputs, y: y * y),
    lambda net: setattr(net[0].weight, "grad", torch.ones(4, 2)), lambda net: net.append(nn.Tanh()),
    lambda net: net[0].weight.register_hook(lambda gradient: gradient * 0.5)])
def test_a_recorded_step_sees_what_callbacks_change(change):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 1.0

        def forward(self, x):
            return x * self.scale

    def run(record_steps):
        torch.manual_seed(1)
        net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), Scaled(), nn.Dropout(0.3), nn.Tanh(), nn.Linear(4, 2))
        trainer = torch.Trainer(net, torch.optim.SGD(net.parameters(), lr=0.1), data(), batch_size=32, epochs=2,
                                record_steps=record_steps)
        trainer.on_update = lambda step: change(net) if step == 4 else None
        trainer.train()
        return {name: x.tolist() for name, x in net.state_dict().items()}

    assert run(True) == run(False)


def test_callbacks_may_set_others():
    net, sgd = model()
    trainer = torch.Trainer(net, sgd, data(), batch_size=32, epochs=2)
    calls = []

    def first(step):
        calls.append("first")
        trainer.on_update = lambda step: calls.append(step)
        trainer.on_epoch = last

    def last(report):
        calls.append(report.epoch)
        trainer.on_update = None

    trainer.on_update = first
    trainer.train()
    assert calls == ["first", 2, 3, 4, 1, 2]


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


def test_evaluate_takes_the_examples_of_a_loader():
    net = nn.Linear(2, 2)
    net.load_state_dict({"weight": torch.zeros(2, 2), "bias": torch.tensor([1.0, 0.0])})
    examples = TensorDataset(torch.rand(10, 2), torch.arange(10) % 2)  # the even ones are right

    def found(data):
        accuracy = torch.evaluate(net, data)
        return accuracy.correct, accuracy.total

    assert found(Subset(examples, [0, 2, 3])) == (2, 3)
    assert found(DataLoader(examples, 4, shuffle=True)) == (5, 10)
    assert found(DataLoader(examples, 4, sampler=SubsetRandomSampler([0, 2, 3]))) == (2, 3)
    assert found(DataLoader(examples, 3, drop_last=True)) == (5, 9)
    assert found(DataLoader(examples, 4, sampler=RandomSampler(examples, num_samples=3)))[1] == 3
    batches = BatchSampler(SequentialSampler(range(5)), 2, drop_last=False)
    assert found(DataLoader(examples, batch_sampler=batches)) == (3, 5)
    loaders = {"collate_fn": {"collate_fn": lambda items: items}, "batch_size=None": {"batch_size": None},
               "worker_init_fn": {"num_workers": 1, "worker_init_fn": print}}
    for name, options in loaders.items():
        with pytest.raises(ValueError, match=f"evaluate: a DataLoader with a? ?{name}"):
            found(DataLoader(examples, **options))
    with pytest.raises(ValueError, match="an __iter__ of its own"):
        found(type("Own", (DataLoader,), {"__iter__": lambda self: iter([])})(examples))
    sgd = torch.optim.SGD(net.parameters(), lr=0.5)
    for take in (torch.Trainer, torch.find_learning_rate):
        with pytest.raises(TypeError, match="found a DataLoader, expected its data set"):
            take(net, sgd, DataLoader(examples))


def test_trainer_sees_attributes_of_its_data_when_it_begins():
    examples = data()
    test = Subset(examples, range(32))
    net, sgd = model()
    trainer = torch.Trainer(net, sgd, examples, test, batch_size=32, epochs=1)
    other, other_sgd = model()
    examples.tensors = (examples.tensors[0] * 2, examples.tensors[1])
    torch.Trainer(other, other_sgd, examples, test, batch_size=32, epochs=1).train()
    trainer.train()
    assert weights(net) == weights(other) and weights(net) != weights(model()[0])
    trainer = torch.Trainer(net, sgd, examples, test, batch_size=32, epochs=1)
    test.indices = [1, 2]
    with pytest.raises(torch.Error, match="data set of 2 examples, expected 32"):
        trainer.train()


def test_an_optimizer_that_changes_is_an_error():
    net, sgd = model()
    trainer = torch.Trainer(net, sgd, data(), batch_size=32)

    def change(step):
        sgd.param_groups[0]["weight_decay"] = 0.1

    trainer.on_update = change
    for _ in range(2):
        with pytest.raises(torch.Error, match="the optimizer's options have changed in the run"):
            trainer.train()
    trainer = torch.Trainer(net, sgd, data(), batch_size=32, epochs=1)
    assert trainer.train().steps == 4

    def loss(y, t):
        sgd.param_groups[0]["momentum"] = 0.5
        return nn.functional.cross_entropy(y, t)

    # What the program sets meanwhile counts after it.
    torch.find_learning_rate(net, sgd, data(), steps=20, loss=loss)
    assert sgd.param_groups[0]["momentum"] == 0.5
    trainer = torch.Trainer(net, sgd, data(), batch_size=32, epochs=1)
    sgd.state.clear()
    with pytest.raises(torch.Error, match="has begun anew since the Trainer was made"):
        trainer.train()


def test_a_trainer_ends_with_its_last_reference():
    net, sgd = model()
    trainer = torch.Trainer(net, sgd, data(), batch_size=32, epochs=1)
    trainer.on_step = trainer.on_update = lambda report: None
    trainer.train()
    alive = weakref.ref(trainer)
    del trainer
    gc.collect()
    assert alive() is None


def test_wrong_results_of_functions_name_them():
    x = torch.rand(8, 2)
    for wrong, words in ((None, "None"), (3.0, "3.0")):
        def bad(*inputs):
            return wrong

        calls = {"metric 'm'": lambda net, sgd: torch.evaluate(net, data(), [torch.Metric("m", bad)]),
                 "loss": lambda net, sgd: torch.Trainer(net, sgd, data(), loss=bad).train(),
                 "forward": lambda net, sgd: torch.Trainer(net, sgd, data(), forward=bad).train(),
                 "batch_transform": lambda net, sgd: torch.Trainer(net, sgd, data(), batch_transform=bad).train()}
        for name, call in calls.items():
            with pytest.raises(TypeError, match=f"{name}: returned {words}, expected"):
                call(*model())
    net, sgd = model()
    with pytest.raises(TypeError, match="forward: returned 3.0, expected a tensor as loss"):
        torch.Trainer(net, sgd, data(), forward=lambda batch: (3.0, net(batch[0]))).train()
    with pytest.raises(TypeError, match="loss_weight: returned 'a', expected a number"):
        torch.Trainer(net, sgd, data(), forward=lambda batch: (net(batch[0]).sum(), net(batch[0])),
                      accumulate=2, batch_size=64, loss_weight=lambda batch: "a").train()
    with pytest.raises(TypeError, match="loss: 3, expected a function"):
        torch.Trainer(net, sgd, data(), loss=3)
    net[0].weight.register_hook(lambda gradient: 3.0)
    with pytest.raises(TypeError, match="hook: returned 3.0, expected a tensor or None"):
        net(x).sum().backward()
        net[0].weight.grad
    net, _ = model()
    lbfgs = torch.optim.LBFGS(net.parameters(), lr=0.1)
    with pytest.raises(TypeError, match="closure: returned None, expected a tensor or a number"):
        lbfgs.step(lambda: None)

    def closure():
        lbfgs.zero_grad()
        loss = (net(x) ** 2).mean()
        loss.backward()
        return loss.item()

    first = lbfgs.step(closure)
    assert isinstance(first, float) and closure() < first


def test_options_of_one_value_are_those_of_trainer():
    net, sgd = model()
    for name, value in (("schedule", "cosine"), ("tensorboard", "folder"), ("receipt", "file")):
        with pytest.raises(torch.Error, match=f"find_learning_rate: .*{name}.*expected none"):
            torch.find_learning_rate(net, sgd, data(), steps=20, **{name: value})


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


def test_predictor_joins_calls_of_threads(tmp_path):
    net, _ = model()
    x = torch.rand(16, 2)
    expected = net(x).tolist()
    torch.save_weights(str(tmp_path / "w.safetensors"), net)
    other, _ = model()
    predict = torch.Predictor(other, tmp_path / "w.safetensors", max_batch=4, wait=0.01)
    found = [None] * 16

    def call(i):
        found[i] = predict(x[i:i + 1]).tolist()[0]

    threads = [threading.Thread(target=call, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected


TOOL = os.environ.get("LOCKSTEP_TOOL", "")


@pytest.mark.skipif(not os.path.exists(TOOL), reason="LOCKSTEP_TOOL names no program")
def test_a_run_of_the_tool_is_loaded(tmp_path):
    table = tmp_path / "points.csv"
    table.write_text("a,b,side\n" + "".join(f"{i % 8},{i // 8},{'right' if i % 8 > i // 8 else 'left'}\n"
                                           for i in range(64)))
    subprocess.run([TOOL, "train", "--data", table, "--target", "side", "--model", "mlp", "--hidden", "8", "--epochs",
                    "1", "--save", tmp_path / "run"], check=True, capture_output=True)
    run = torch.load_run(tmp_path / "run")
    assert (run.name, run.classes, run.input) == ("mlp", ["left", "right"], [2])
    examples, names = run.open(table)
    assert len(examples) == 64 and names[0] == "1"
    x = torch.stack([examples[i][0] for i in range(64)])
    chances = run(x)
    assert torch.allclose(chances, torch.softmax(run.model(x), 1), atol=1e-6)
    correct = sum(chances[i].argmax().item() == examples[i][1].item() for i in range(64))
    assert torch.evaluate(run.model, examples).correct == correct
    unlabeled, _ = run.open(table, labels=False)
    assert len(unlabeled[0]) == 1


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


def test_options_that_would_be_ignored_are_errors():
    net, sgd = model()
    for options, message in ((dict(label_smoothing=0.1, loss=nn.functional.mse_loss), "label_smoothing with a loss"),
                             (dict(save_every=1), "without save_folder")):
        with pytest.raises(ValueError, match=message):
            torch.Trainer(net, sgd, data(), **options)


def test_gluon_has_mxnets_defaults():
    from lockstep import gluon

    net = gluon.nn.Dense(1, in_units=2)
    net.initialize()
    groups = {name: gluon.Trainer(net.collect_params(), name).optimizer.param_groups[0]
              for name in ("sgd", "adam", "adagrad", "rmsprop", "adadelta")}
    assert [g["lr"] for g in groups.values()] == [0.01, 0.001, 0.01, 0.001, 1.0] and groups["rmsprop"]["alpha"] == 0.9
    assert net.weight.shape == (1, 2)
    loss = gluon.loss.L2Loss()
    with gluon.autograd.record():
        both = loss(net(torch.ones(3, 2)), torch.ones(3)) + loss(net(torch.ones(3, 2)), torch.ones(3)) * 2
    both.backward()
    assert len(both) == 3


def test_a_predictor_refuses_a_model_that_counts_rows():
    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x):
            time.sleep(0.05)  # so that calls meet
            return self.layer(x) / len(x)

    class Plain(Mean):
        def forward(self, x):
            time.sleep(0.05)
            return self.layer(x).view(x.size(0), -1)

    def results(kind):
        predict, x, found = torch.Predictor(kind(), max_batch=4, wait=10), torch.ones(1, 2), []
        expected = predict(x).tolist()

        def call():
            try:
                found.append(predict(x).tolist() == expected)
            except torch.Error as error:
                found.append("computes with the number of rows" in str(error))
                found.append("refused")

        threads = [threading.Thread(target=call) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    wrong, right = results(Mean), results(Plain)
    assert False not in wrong and "refused" in wrong
    assert right == [True] * 6


class Flipped(Dataset):
    def __init__(self):
        self.pictures, self.flip = torch.rand(64, 1, 2, 2), torch.transforms.RandomHorizontalFlip()

    def __len__(self):
        return 64

    def __getitem__(self, i):
        return self.flip(self.pictures[i]), i % 2


def test_an_honest_run_of_random_transforms_passes_its_audit(tmp_path):
    def trainer(data, **options):
        torch.manual_seed(3)
        net = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
        sgd = torch.optim.SGD(net.parameters(), lr=0.1)
        return torch.Trainer(net, sgd, data, batch_size=16, epochs=2, workers=2, **options)

    torch.manual_seed(2)
    data = Flipped()
    trainer(data, receipt=tmp_path / "receipt.json").train()
    assert trainer(data).audit(tmp_path / "receipt.json").steps > 0


def test_a_receipt_of_others_draws_says_so(tmp_path):
    numpy = pytest.importorskip("numpy")

    class Noisy(Flipped):
        def __getitem__(self, i):
            noise = float(numpy.random.randn()) if i == 50 else 0.
            return self.pictures[i] + noise, i % 2

    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.warns(RuntimeWarning, match=r"Noisy draws from numpy.random.randn\(\).*audit of a receipt fails"):
        torch.Trainer(net, sgd, Noisy(), batch_size=16, epochs=1, receipt=tmp_path / "receipt.json").train()


def test_a_step_of_a_class_is_refused():
    class Halving(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    net, _ = model()
    with pytest.raises(TypeError, match=r"Trainer: Halving has a step\(\) of its own"):
        torch.Trainer(net, Halving(net.parameters(), lr=0.1), data(), batch_size=32)


def run_of_groups(folder, schedule, stops=None, callback=None, **options):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
    sgd = torch.optim.SGD([{"params": net[0].parameters()}, {"params": net[2].parameters(), "lr": 0.05}], lr=0.1)
    trainer = torch.Trainer(net, sgd, data(), batch_size=32, epochs=4, save_folder=folder, schedule=schedule, seed=7,
                            **options)
    trainer.on_update = lambda step: trainer.request_stop() if step == stops else None
    trainer.on_epoch = (lambda report: callback(sgd, report)) if callback else None
    return net, sgd, trainer


def lower(optimizer, report):
    for i, group in enumerate(optimizer.param_groups):
        group["lr"] = 0.1 / (1 + report.epoch + i)


@pytest.mark.parametrize("schedule,callback", [
    ("cosine", None), ({"kind": "linear", "warmup": 4}, None), ("one_cycle", None), (None, lower)])
@pytest.mark.parametrize("begin", ["resume", "resume_or_start", "option"])
def test_a_resumed_run_has_the_rates_of_its_checkpoint(schedule, callback, begin, tmp_path):
    net, sgd, trainer = run_of_groups(tmp_path / "whole", schedule, callback=callback)
    trainer.train()
    expected, rates = weights(net), [g["lr"] for g in sgd.param_groups]
    net, sgd, trainer = run_of_groups(tmp_path / "part", schedule, stops=6, callback=callback)
    trainer.train()
    stopped = [g["lr"] for g in sgd.param_groups]
    net, sgd, trainer = run_of_groups(tmp_path / "part", schedule, callback=callback, resume=begin == "option")
    if begin == "resume":
        trainer.resume(tmp_path / "part")
    elif begin == "resume_or_start":
        trainer.resume_or_start()
    if begin != "option":
        assert [g["lr"] for g in sgd.param_groups] == stopped
    trainer.train()
    assert weights(net) == expected and [g["lr"] for g in sgd.param_groups] == rates


def test_the_recipe_states_the_rate_that_is_trained():
    for schedule in ({"kind": "constant", "base_lr": 0.5}, {"base_lr": 0.5}, {"kind": "cosine", "base_lr": 0.5}):
        net, sgd = model()
        sgd.param_groups[0]["lr"] = 0.1
        trainer = torch.Trainer(net, sgd, data(), batch_size=32, epochs=1, schedule=schedule)
        rates = []
        trainer.on_step = lambda report: rates.append(report.learning_rate)
        assert sgd.param_groups[0]["lr"] == 0.5
        trainer.train()
        assert rates[0] == 0.5 and json.loads(trainer.recipe)["learning_rate"] == 0.5
    net, sgd = model()
    with pytest.raises(torch.Error, match="warm-up -1"):
        torch.Trainer(net, sgd, data(), schedule={"base_lr": 0.25, "warmup": -1})
    assert sgd.param_groups[0]["lr"] == 0.5 and sgd.engine.learning_rates() == [0.5]
    # Options of the first step count; later ones would be in no recipe.
    trainer = torch.Trainer(net, sgd, data(), batch_size=32, epochs=1)
    sgd.param_groups[0].update(lr=0.25, momentum=0.8)
    trainer.train()
    assert json.loads(trainer.recipe)["learning_rate"] == 0.25 and json.loads(trainer.recipe)["momentum"] == 0.8
    net, sgd = model()
    trainer = torch.Trainer(net, sgd, data(), batch_size=32, epochs=2)
    trainer.on_epoch = lambda report: sgd.param_groups[0].update(momentum=0.7)
    with pytest.raises(torch.Error, match="options have changed in the run"):
        trainer.train()
    net, sgd = model()
    trainer = torch.Trainer(net, sgd, data(), batch_size=32, epochs=2, schedule="cosine")
    rates = []
    trainer.on_step = lambda report: rates.append(report.learning_rate)
    trainer.on_epoch = lambda report: sgd.param_groups[0].update(lr=0.7)
    trainer.train()
    assert rates[0] == 0.5 and max(rates) == 0.5  # the schedule replaces it


def test_rates_of_a_loop_and_of_trainers_are_one():
    net, sgd = model()
    x, y = torch.rand(8, 2), torch.zeros(8, dtype=torch.int64)
    for lr in (0.3, 0.02):
        sgd.param_groups[0]["lr"] = lr
        nn.functional.cross_entropy(net(x), y).backward()
        sgd.step()
    for schedule in (None, "cosine"):
        trainer = torch.Trainer(net, sgd, data(), batch_size=64, epochs=1, schedule=schedule)
        rates = []
        trainer.on_step = lambda report: rates.append(report.learning_rate)
        trainer.train()
        assert rates[0] == 0.02 and json.loads(trainer.recipe)["learning_rate"] == 0.02
        sgd.param_groups[0]["lr"] = 0.02
    before = sgd.param_groups[0]["lr"]
    torch.find_learning_rate(net, sgd, data(), first=1e-4, steps=20, batch_size=32)
    assert sgd.param_groups[0]["lr"] == before and sgd.engine.learning_rates() == [before]


def test_a_step_without_labels_says_so():
    rows = TensorDataset(torch.ones(8, 2), torch.full((8,), -100))
    net = nn.Linear(2, 3)
    with pytest.raises(torch.Error, match="the loss is nan at step 1.*all labels are ignored"):
        torch.Trainer(net, torch.optim.SGD(net.parameters(), lr=0.1), rows, batch_size=8, epochs=1).train()
