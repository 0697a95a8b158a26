"""Signals, forks, the end of the interpreter, and memory."""

import os
import subprocess
import sys
import textwrap
import time

import pytest

import lockstep as torch


def run(program):
    return subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120)


def test_interrupt_ends_a_wait():
    result = run("""
        import os, signal, threading
        import lockstep as torch
        net = torch.nn.Linear(1000, 1000)
        with torch.no_grad():
            x = net(torch.randn(1000, 1000))
            x.sum().item()
            for _ in range(400):
                x = net(x)
        threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            x.sum().item()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        os._exit(0)
    """)
    assert result.stdout == "interrupted\n"


def test_exit_with_work_in_flight():
    result = run("""
        import lockstep as torch
        net = torch.nn.Linear(300, 300)
        x = torch.randn(300, 300)
        for _ in range(30):
            x = net(x)
        x.sum().backward()
    """)
    assert (result.returncode, result.stderr) == (0, "")


# A daemon thread is not waited for: what it does in the library must neither abort nor hold up the end.
@pytest.mark.parametrize("work", ["Trainer(net, sgd, rows, batch_size=16, epochs=10**6).train()",
                                  "evaluate(net, rows)", "loop(DataLoader(rows, 16))", "loop(DataLoader(cores, 16))",
                                  "calls()"])
def test_exit_while_a_daemon_thread_works(work):
    result = run(f"""
        import threading, time
        import lockstep as torch
        from lockstep import Trainer, evaluate, nn
        from lockstep.utils.data import DataLoader, Dataset, TensorDataset

        class Rows(Dataset):
            def __len__(self):
                return 10**6
            def __getitem__(self, i):
                began.set()
                return torch.ones(2), 0

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(2, 2)
            def forward(self, x):
                began.set()
                return self.linear(x)

        def loop(loader):
            while True:
                for x, y in loader:
                    net(x)

        def calls():
            while True:
                net(torch.ones(2, 2))

        began = threading.Event()
        net, rows, cores = nn.Sequential(Net()), Rows(), TensorDataset(torch.ones(64, 2), torch.zeros(64).long())
        sgd = torch.optim.SGD(net.parameters(), lr=0.5)
        threading.Thread(target=lambda: {work}, daemon=True).start()
        began.wait()
        time.sleep(0.05)
        print("leaving", flush=True)
    """)
    assert (result.returncode, result.stdout, result.stderr) == (0, "leaving\n", "")


def test_fork_after_use_is_an_error():
    result = run("""
        import os
        import lockstep as torch
        net = torch.nn.Linear(3, 3)
        print(net(torch.randn(2, 3)).shape, flush=True)
        if os.fork() == 0:
            try:
                net(torch.randn(2, 3)).sum().item()
            except torch.Error as error:
                print("fork() " in str(error), flush=True)
            os._exit(0)
        os.wait()
    """)
    assert result.stdout == "torch.Size([2, 3])\nTrue\n", result.stderr


def test_memory_stays_flat():
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    x = torch.randn(64, 64, requires_grad=True)

    def step():
        y = (x * 2).transpose(0, 1)
        y[0] = 1
        col = x.detach()[:, 0]
        col.mul_(0.5)
        y.sum().backward()
        x.grad = None

    for _ in range(200):
        step()
    before = resident()
    for _ in range(2000):
        step()
    assert resident() - before < 8 << 20


def test_array_is_released():
    np = pytest.importorskip("numpy")
    import gc
    import weakref

    class Array(np.ndarray):
        pass

    array = np.zeros(1000, np.float32).view(Array)
    alive = weakref.ref(array)
    x = torch.from_numpy(array)
    del array
    assert alive() is not None and x.sum().item() == 0
    y = x + 1
    del x
    y.sum().item()
    gc.collect()
    for _ in range(1000):
        if alive() is None:
            break
    assert alive() is None


# Where Ctrl-C comes: while the loop waits for a batch, or in the loop's own code, beside workers in slow examples.
@pytest.mark.parametrize("seconds", [0.5, 60])
@pytest.mark.parametrize("first", [0, 1])
def test_interrupt_beside_slow_workers(seconds, first):
    result = run(f"""
        import os, signal, threading, time
        import lockstep as torch
        from lockstep.utils.data import DataLoader, Dataset

        class Slow(Dataset):
            def __len__(self):
                return 1000
            def __getitem__(self, i):
                time.sleep({seconds} if i >= {first} else 0)
                return torch.zeros(1)

        def interrupt():
            global at
            at = time.monotonic()
            os.kill(os.getpid(), signal.SIGINT)

        threading.Timer(0.5, interrupt).start()
        try:
            for x in DataLoader(Slow(), batch_size=1 if {first} else 100, num_workers=2):
                time.sleep(60)
        except KeyboardInterrupt:
            print(time.monotonic() - at < 2, flush=True)
        print(time.time(), flush=True)
    """)
    lines = result.stdout.split()
    assert lines[0] == "True" and time.time() - float(lines[1]) < 2 and result.stderr == ""


def test_workers_end_with_their_loop():
    result = run("""
        import gc, threading, time
        import lockstep as torch
        from lockstep.utils.data import DataLoader

        rows = [torch.zeros(2)] * 100

        def workers():
            return sum("lockstep-loader" in thread.name for thread in threading.enumerate())

        for x in DataLoader(rows, 10, num_workers=3):
            pass
        print(workers())
        for x in DataLoader(rows, 10, num_workers=3):
            break
        del x
        gc.collect()
        print(workers())
        loader = DataLoader(rows, 10, num_workers=3, persistent_workers=True)
        print(len(list(loader)), len(list(loader)), workers())
        del loader
        gc.collect()
        time.sleep(0.2)
        print(workers())
    """)
    assert result.stdout == "0\n0\n10 10 3\n0\n" and result.stderr == ""


# A gradient that is read after step() is None: an error on account of that says so.
def test_a_missing_gradient_is_explained(tmp_path):
    program = """
import lockstep as torch
p = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([p], lr=0.1)
(p * p).sum().backward()
optimizer.step()
{}
"""
    hint = "lockstep: a gradient is None until backward(), and after optimizer.step(), which clears it"
    for line, found in (("print(p.grad.norm())", True), ("print(p.grad * 2)", True), ("None.norm()", False)):
        (tmp_path / "program.py").write_text(program.format(line))
        done = subprocess.run([sys.executable, "-W", "error", tmp_path / "program.py"], capture_output=True, text=True)
        assert done.returncode == 1 and "NoneType" in done.stderr and (hint in done.stderr) == found, done.stderr
