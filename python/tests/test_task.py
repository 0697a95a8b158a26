"""open_data: the tool's road to examples, from Python."""

import json
import os
import subprocess

import numpy as np
import pytest

import lockstep as torch

TOOL = os.environ.get("LOCKSTEP_TOOL", "")


def write_table(folder, rows=120):
    table = folder / "points.csv"
    lines = [f"{i % 8},{i // 8},{'right' if i % 8 > i // 8 else 'left'}" for i in range(rows)]
    table.write_text("a,b,side\n" + "\n".join(lines) + "\n")
    return table


def test_a_table_is_learned(tmp_path):
    data = torch.open_data(write_table(tmp_path), target="side", val_split=0.2)
    assert (data.format, data.task, data.classes, data.input, data.outputs) == (
        "csv", "classification", ["left", "right"], [2], 2)
    assert len(data.train) + len(data.validation) == 120 and sum(data.train_counts) == len(data.train)
    assert "120 rows" in str(data) and data.name_of(0).isdigit() and data.loss is None
    torch.manual_seed(1)
    net = data.model(hidden=[16])
    trainer = torch.Trainer(net, torch.optim.Adam(net.parameters(), lr=0.05), data.train, data.validation,
                            batch_size=32, epochs=20, loss=data.loss, metrics=data.metrics,
                            recipe={"data": data.digest})
    assert trainer.train().last.metrics["accuracy"] > 0.8
    with pytest.raises(IndexError):
        data.train[len(data.train)]
    with pytest.raises(torch.Error, match="name_of: example -1"):
        data.name_of(-1)


def test_numbers_have_a_loss_and_metrics(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.random.RandomState(0).rand(60, 3), y=np.linspace(0, 500, 60))
    data = torch.open_data(tmp_path / "a.npz")
    assert data.task == "regression" and data.classes == [] and data.outputs == 1
    assert data.loss(torch.zeros(4, 1), torch.ones(4, 1)).item() == 1
    net = data.model()
    trainer = torch.Trainer(net, torch.optim.SGD(net.parameters(), lr=0.01), data.train, data.validation, batch_size=16,
                            epochs=1, loss=data.loss, metrics=data.metrics)
    assert trainer.train().last.metrics["mean_absolute_error"] > 0


def test_a_text_and_pictures_have_models(tmp_path):
    (tmp_path / "text.txt").write_text("the cat sat on the mat. " * 40)
    text = torch.open_data(tmp_path / "text.txt", context=16)
    assert text.task == "language" and " " in text.classes and text.validation_counts == []
    assert text.model(layers=1, width=8, heads=2, dropout=0)(text.train[0][0].unsqueeze(0)).shape == (
        1, 16, len(text.classes))
    np.save(tmp_path / "x.npy", (np.arange(40 * 3 * 12 * 12) % 251).astype(np.uint8).reshape(40, 3, 12, 12))
    np.save(tmp_path / "y.npy", np.arange(40) % 4)
    pictures = torch.open_data(tmp_path, format="npy", augment="light", transforms={"flip": 0.0, "rotation": 5})
    assert pictures.input == [3, 12, 12] and "RandomRotation" in pictures.transforms
    assert pictures.model("lenet")(pictures.train[0][0].unsqueeze(0)).shape == (1, 4)
    with pytest.raises(torch.Error, match="expected a text for layers"):
        pictures.model("mlp", layers=9)
    with pytest.raises(torch.Error, match="unknown model resnet99: expected .*lenet"):
        pictures.model("resnet99")
    few = torch.open_data(tmp_path, format="npy", limit_train=3, limit_validation=1)
    assert "the first 3 to train and 1 to validate" in str(few)
    assert len(few.train) == 3 and len(few.validation) == 1 and sum(few.train_counts) == 3


def test_a_run_has_a_page_and_metrics(tmp_path):
    data = torch.open_data(write_table(tmp_path))
    net = data.model(hidden=[8])
    trainer = torch.Trainer(net, torch.optim.Adam(net.parameters()), data.train, data.validation, batch_size=32,
                            epochs=2, report={"folder": tmp_path / "page", "title": "Points", "data": data},
                            metrics_file=tmp_path / "run.prom", recipe={"model": "mlp", "data": data.digest})
    assert trainer.train().failures == []
    page = (tmp_path / "page" / "report.html").read_text()
    assert all(part in page for part in ("Points", "finished at", "left", data.digest))
    assert 'model="mlp"' in (tmp_path / "run.prom").read_text()
    (tmp_path / "file").write_text("")
    other = torch.Trainer(net, torch.optim.Adam(net.parameters()), data.train, report=tmp_path / "file" / "page")
    with pytest.raises((torch.Error, RuntimeError), match="file"):
        other.train()
    with pytest.raises(TypeError, match="unknown option colour"):
        torch.Trainer(net, torch.optim.Adam(net.parameters()), data.train, report={"colour": 1})


@pytest.mark.parametrize("options,message", [
    ({"normalization": "some"}, "normalization is \"some\""), ({"delimiter": ";;"}, "delimiter is \";;\""),
    ({"transforms": {"turn": 3}}, "transforms has \"turn\""),
    ({"transforms": {"flip": "a"}}, "flip is 'a', expected a number"),
    ({"transforms": {"color_jitter": 0.4}}, "color_jitter is 0.4, expected at most 4 numbers"),
    ({"limit_train": -1}, "limit_train and limit_validation are -1"), ({"max_pixels": -5}, "max_pixels is -5"),
    ({"context": 0}, "a context of 0"), ({"format": "gif"}, "gif"), ({"task": "guess"}, "guess"),
    ({"augment": "light"}, "expected pictures for augmentation"),
    ({"max_pixels": 9}, "csv, expected a folder of pictures for max_pixels"),
    ({"context": 16}, "csv, expected a text for context"), ({"val_split": 1.0}, "val_split is 1")])
def test_wrong_options_are_refused(tmp_path, options, message):
    with pytest.raises((torch.Error, KeyError, TypeError), match=message):
        torch.open_data(write_table(tmp_path), **options)


@pytest.mark.skipif(not os.path.exists(TOOL), reason="LOCKSTEP_TOOL names no program")
def test_examples_and_weights_are_those_of_the_tool(tmp_path):
    table = write_table(tmp_path)
    subprocess.run([TOOL, "train", "--data", table, "--hidden", "16,8", "--epochs", "3", "--save", tmp_path / "run",
                    "--log", tmp_path / "log"], check=True, capture_output=True)
    data = torch.open_data(table)
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert json.loads(data.schema) == run["schema"]
    start = json.loads((tmp_path / "log").read_text().splitlines()[0])
    assert start["data"] == data.digest
    torch.manual_seed(0)
    net = data.model(hidden=[16, 8])
    torch.Trainer(net, torch.optim.Adam(net.parameters()), data.train, data.validation, batch_size=32, epochs=3,
                  loss=data.loss, metrics=data.metrics).train()
    end = json.loads((tmp_path / "log").read_text().splitlines()[-1])
    assert torch.weights_sha256(net) == end["weights_sha256"]
