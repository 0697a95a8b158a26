import ast
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import lockstep as torch
from lockstep import nn

ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = pathlib.Path(torch.__file__).parent


def test_the_import_needs_no_numpy():
    code = "import sys; sys.modules['numpy'] = None; import lockstep as torch; print(torch.ones(2).sum().item())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "2.0\n"


def test_stubs_name_what_the_modules_have():
    if not (PACKAGE / "__init__.pyi").exists():
        pytest.skip("a build with sanitizers has no stubs")
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text())
    named = {alias.asname or alias.name
             for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    named |= {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    assert {"Tensor", "Trainer", "manual_seed", "nn", "optim"} <= named


PROGRAM = '''
import lockstep as torch
from lockstep import nn
from lockstep.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(2, 8)
        self.out = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.relu(self.hidden(x)))


def main() -> float:
    torch.manual_seed(1)
    x = torch.rand(64, 2)
    net = Net()
    data = TensorDataset(x, (x[:, 0] > 0.5).long())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for inputs, labels in DataLoader(data, batch_size=16, shuffle=True):
        loss = nn.functional.cross_entropy(net(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    trainer = torch.Trainer(net, optimizer, data, epochs=1, batch_size=16)
    trainer.on_step = lambda report: print(report.loss + 1.0)
    return trainer.train().epochs[0].train_loss


print(main())
'''


def test_mypy_accepts_a_program(tmp_path):
    if shutil.which("mypy", path="/usr/bin") is None or not (PACKAGE / "__init__.pyi").exists():
        pytest.skip("mypy is missing")
    (tmp_path / "program.py").write_text(PROGRAM)
    command = ["/usr/bin/mypy", "--strict", "--follow-imports=silent", "--cache-dir", tmp_path / "cache", "program.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path,
                          env={"MYPYPATH": str(PACKAGE.parent), "PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = PROGRAM.replace("torch.manual_seed(1)", "torch.manual_sead(1)")
    (tmp_path / "program.py").write_text(wrong)
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path,
                          env={"MYPYPATH": str(PACKAGE.parent), "PATH": "/usr/bin:/bin"})
    assert "manual_sead" in done.stdout


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_programs_of_pages_run(page, tmp_path):
    programs = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert programs
    for program in programs:
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, program + done.stderr
        assert "False" not in done.stdout


def test_the_first_programs_have_one_hash():
    programs = [p for page in ("README.md", "docs/python.md")
                for p in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL) if ".on(net)" in p]
    assert len(programs) >= 2
    for program in programs:
        program += "\nimport lockstep\nprint(lockstep.weights_sha256(net))\n"
        runs = [subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True,
                               env={**os.environ, "LOCKSTEP_DEVICES": count}) for count in "1238"]
        hashes = {done.stdout.split("\n")[-2] for done in runs}
        assert len(hashes) == 1 and len(hashes.pop()) == 64, program + runs[0].stderr


def test_a_tensor_shows_statistics_and_a_picture():
    html = torch.arange(6).reshape(2, 3).float()._repr_html_()
    assert "[2, 3] float32 on cpu" in html and "max 5" in html and "data:image/png" in html
    assert html.count("<img") == 1
    assert torch.rand(3, 1, 16, 16)._repr_html_().count("<img") == 3
    assert "min 1, max 1, mean 1, <b>1 not finite</b>" in torch.tensor([float("nan"), 1.0])._repr_html_()
    assert "<img" not in torch.empty(0)._repr_html_()


def test_a_model_shows_its_layers():
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU())
    assert "20 parameters" in net._repr_html_()
    table = torch.summary(net, [4, 1, 8, 8])
    assert "[4, 2, 6, 6]" in str(table) and "[4, 2, 6, 6]" in table._repr_html_()


def test_curves_and_timelines_are_pictures(tmp_path):
    assert "loss" in torch.plot({"loss": [1.0, 0.5, 0.25]})._repr_svg_()
    with torch.Timeline() as timeline:
        nn.Linear(64, 64)(torch.rand(64, 64)).sum().item()
    assert "<title>" in timeline._repr_svg_()
    timeline.write(tmp_path / "trace.json")
    drawn = torch.Timeline.read(tmp_path / "trace.json").picture("a & b")
    assert "a &amp; b" in drawn.svg and ">matmul</text>" in drawn.svg and "compute" in drawn.svg
    drawn.write(tmp_path / "trace.svg")
    assert (tmp_path / "trace.svg").read_text() == drawn.svg
    assert "<rect" in torch.Timeline()._repr_svg_()  # of nothing


def test_the_tasks_of_a_step_are_a_picture():
    net = nn.Sequential(nn.Linear(8, 4), nn.ReLU())
    net(torch.rand(2, 8))
    with torch.StepGraph() as graph:
        net(torch.rand(2, 8)).sum().backward()
        with pytest.raises(torch.Error, match="already"), torch.StepGraph():
            pass
    tasks = [name for _, names in graph.nodes for name in names]
    assert "matmul" in tasks and len(graph.edges) >= 2 and {device for device, _ in graph.nodes} <= {"cpu:0", "host"}
    assert all(start < end for start, end, _ in graph.edges)
    assert graph._repr_svg_().count("<rect") == len(graph.nodes) + 1


def test_progress_in_a_pipe_and_a_terminal():
    pipe = io.StringIO()
    for _ in torch.progress(range(20), "epoch 1", file=pipe):
        pass
    lines = pipe.getvalue().splitlines()
    assert len(lines) == 10 and lines[-1].startswith("epoch 1: 20/20")

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    bar = torch.progress(range(20), file=terminal)
    for _ in bar:
        bar.set_postfix(loss=0.25)
    assert terminal.getvalue().endswith("\n") and "[####################] 20/20" in terminal.getvalue()
    assert "loss 0.25" in terminal.getvalue()


def test_the_back_end_makes_a_valid_wheel(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "packaging/wheel"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    back_end = __import__("lockstep_wheel")

    def compiled(prefix, settings):
        (pathlib.Path(prefix) / "lockstep").mkdir()
        (pathlib.Path(prefix) / "lockstep/__init__.py").write_text("made = True\n")
        return pathlib.Path(prefix), b"what it is made of"

    monkeypatch.setattr(back_end, "compile_package", compiled)
    name = back_end.build_wheel(str(tmp_path))
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--target", tmp_path / "site",
               tmp_path / name]
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode != 0:
        pytest.skip("pip is missing")
    subprocess.run(command, check=True, capture_output=True)
    assert (tmp_path / "site/lockstep/__init__.py").read_text() == "made = True\n"
    assert [sbom.read_text() for sbom in tmp_path.glob("site/*.dist-info/sboms/*")] == ["what it is made of"]
    archive = back_end.build_sdist(str(tmp_path))
    assert archive == f"lockstep-{torch.__version__}.tar.gz"


def test_settings_of_backends():
    import lockstep.backends.cudnn as cudnn

    cudnn.benchmark, cudnn.deterministic = True, True
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.use_deterministic_algorithms(True)
    assert cudnn.benchmark and not torch.backends.mps.is_available()
    with pytest.raises(torch.Error, match="cudnn.enabled = False"):
        cudnn.enabled = False
    with pytest.raises(AttributeError, match="no setting benchmrk"):
        cudnn.benchmrk = True


def test_files_keep_arrays_and_leaves(tmp_path):
    np = pytest.importorskip("numpy")
    saved = {"a": np.arange(3, dtype=np.int32), "w": torch.ones(2, requires_grad=True), 1: torch.ones(1),
             "1": torch.zeros(1)}
    torch.save(saved, tmp_path / "x")
    loaded = torch.load(tmp_path / "x")
    assert loaded["a"].dtype == np.int32 and loaded["a"].tolist() == [0, 1, 2] and loaded["w"].requires_grad
    assert (loaded[1].item(), loaded["1"].item()) == (1, 0)
