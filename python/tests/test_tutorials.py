"""The programs of the tutorials, in small: what they print."""

import os
import re
import subprocess
import sys

import pytest

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples")
DATA = os.path.isdir("/usr/share/datasets/fashion-mnist") or "LOCKSTEP_DATA" in os.environ
needs_data = pytest.mark.skipif(not DATA, reason="Fashion-MNIST is missing")


def run(program, *arguments, devices=1, folder=None):
    environment = {**os.environ, "LOCKSTEP_DEVICES": str(devices)}
    environment.pop("PYTHONUNBUFFERED", None)  # lines of two processes would mix
    done = subprocess.run([sys.executable, "-W", "error", os.path.join(EXAMPLES, program), *map(str, arguments)],
                          capture_output=True, text=True, env=environment, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


# The tutorial's table: the rows that each replica sees of a batch of 30 and of one of 10.
@pytest.mark.parametrize("devices, of_30, of_10", [
    (1, [30], [10]), (2, [15, 15], [5, 5]), (3, [10, 10, 10], [4, 4, 2]), (8, [4] * 7 + [2], [2] * 5)])
def test_data_parallel(devices, of_30, of_10):
    expected = "" if devices == 1 else f"Let's use {devices} devices!\n"
    for n, parts in [(30, of_30)] * 3 + [(10, of_10)]:
        for rows in parts:
            expected += f"\tIn Model: input size torch.Size([{rows}, 5]) output size torch.Size([{rows}, 2])\n"
        expected += f"Outside: input size torch.Size([{n}, 5]) output_size torch.Size([{n}, 2])\n"
    assert run("data_parallel.py", devices=devices) == expected


def test_multigpu(tmp_path):
    lines = run("multigpu.py", 1, 1, "--batch_size", 256, folder=tmp_path).splitlines()
    assert sorted(lines) == ["Epoch 0 | Training checkpoint saved at checkpoint.pt",
                             "[GPU0] Epoch 0 | Batchsize: 256 | Steps: 4", "[GPU1] Epoch 0 | Batchsize: 256 | Steps: 4"]
    assert (tmp_path / "checkpoint.pt").exists()


def test_ddp():
    lines = run("ddp.py").splitlines()
    assert sorted(lines) == sorted(f"{verb} {demo} example on rank {rank}." for verb in ("Running", "Finished running")
                                   for demo in ("basic DDP", "DDP checkpoint") for rank in (0, 1))


@needs_data
@pytest.mark.parametrize("program, devices", [("multi_gpu_concise.py", 2), ("multi_gpu_concise_gluon.py", 1),
                                              ("multi_gpu_concise_gluon.py", 2)])
def test_multi_gpu_concise(program, devices):
    out = run(program, 1, 32, 16, devices=devices)
    names = ", ".join(f"device(type='cpu', index={i})" for i in range(devices))
    last = r"test acc: 0\.\d\d, \d+\.\d sec/epoch on " + re.escape(f"[{names}]") + r"\n"
    assert re.search(r"epoch 1, test acc 0\.\d\d\n" + last + "$", out), out
    if "gluon" in program:
        assert ("not initialized on cpu" in out) == (devices > 1)
        # The first filter, from each device.
        filters = re.findall(r"tensor\(\[\[\[[^)]*\)", out)
        assert len(filters) == devices and len({text.split(", device")[0] for text in filters}) == 1, out


@needs_data
def test_multi_gpu_concise_zh():
    out = run("multi_gpu_concise_zh.py", 1, 32, 16, devices=2)
    assert "not initialized on cpu\n" in out
    filters = re.findall(r"tensor\(\[\[\[[^)]*\)", out)
    assert len(filters) == 2 and filters[0].split(", device")[0] == filters[1].split(", device")[0], out
    for n in (1, 2):
        devices = ", ".join(f"device(type='cpu', index={i})" for i in range(n))
        epoch = r"\nepoch 1, time \d+\.\d sec, test acc \d\.\d\d\n"
        assert re.search(re.escape(f"running on: [{devices}]") + epoch, out)


@pytest.mark.parametrize("program", ["automatic_parallelism.py", "automatic_parallelism_gluon.py"])
@pytest.mark.parametrize("devices", [2, 3])
def test_automatic_parallelism(program, devices):
    out = run(program, 64, 2, devices=devices)
    names = ["GPU1 time", "GPU2 time", "GPU1 & GPU2", "Run on GPU1", "Copy to CPU", "Run on GPU1 and copy to CPU"]
    assert [re.fullmatch(r"(.*): \d+\.\d{4} sec", line)[1] for line in out.splitlines()] == names


def test_language_model(tmp_path):
    (tmp_path / "text").write_text("to be or not to be, that is the question. " * 20)
    out = run("language_model.py", tmp_path / "text", 20, devices=2)
    first, last = (float(x) for x in re.findall(r"loss (\d\.\d+)", out))
    assert last < first - 0.5


def test_own_pictures(tmp_path):
    numpy = pytest.importorskip("numpy")
    image = pytest.importorskip("PIL.Image")
    for name, channel in (("blue", 2), ("red", 0)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(12):
            pixels = numpy.zeros((20 + i, 24, 3), numpy.uint8)
            pixels[:, :, channel] = 100 + 10 * i
            image.fromarray(pixels).save(tmp_path / "photos" / name / f"{i}.png")
    out = run("own_pictures.py", "photos", 3, devices=2, folder=tmp_path)
    assert out.startswith("24 pictures, classes: blue, red\n") and "epoch 3, test acc 1.00" in out
    assert (tmp_path / "pictures.safetensors").exists()
