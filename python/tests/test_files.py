"""save() and load(): every size of a file, files of PyTorch, and files that were made to do harm."""

import collections
import io
import json
import os
import pickle
import random
import resource
import struct
import subprocess
import sys
import zipfile

import pytest

import lockstep as torch

SEED = int(os.environ.get("LOCKSTEP_TEST_SEED", 0))
CASES = int(os.environ.get("LOCKSTEP_TEST_CASES", 300))


@pytest.mark.parametrize("in_memory", [False, True])
def test_load_reads_what_save_wrote(tmp_path, in_memory):
    # The first bytes of a file are the size of its header, and may be those of a pickle or of a zip archive.
    names = ["w" * n for n in range(1, 260)]
    names += ["w" * (n - 300) for n in (19280, 19280 + 65536)] + ["é" * 41, '"\\\n', "PK\x03\x04"]
    for name in names:
        file = io.BytesIO() if in_memory else tmp_path / "x"
        for pad in range(0, 16 if len(name) > 10000 else 1):
            torch.save({name + "p" * pad: torch.tensor([1., 2.])}, file)
            if in_memory:
                file.seek(0)
            assert torch.load(file)[name + "p" * pad].tolist() == [1, 2]
            if in_memory:
                file = io.BytesIO()


def random_value(draw, depth=0):
    kind = draw.randrange(9 if depth < 4 else 6)
    if kind < 2:
        return torch.full([draw.randrange(1, 4) for _ in range(draw.randrange(3))], draw.randrange(100),
                          dtype=draw.choice([torch.float32, torch.int64, torch.float64]))
    if kind < 6:
        return [draw.randrange(-2**70, 2**70), draw.uniform(-1, 1), None,
                "".join(map(chr, draw.choices(range(1, 999), k=3))), True][draw.randrange(5)]
    values = [random_value(draw, depth + 1) for _ in range(draw.randrange(4))]
    if kind == 6:
        return values
    if kind == 7:
        return tuple(values)
    made = draw.choice([dict, collections.OrderedDict])()
    made.update((draw.choice([str(i), i, "k" * draw.randrange(200)]), v) for i, v in enumerate(values))
    return made


def same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.tolist() == b.tolist() and a.shape == b.shape
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def test_random_objects_are_as_before():
    draw = random.Random(SEED)
    for case in range(CASES):
        value, file = random_value(draw), io.BytesIO()
        torch.save(value, file)
        assert same(torch.load(io.BytesIO(file.getvalue())), value), (SEED, case, value)


PYTORCH = """
import collections, fractions, sys, numpy, torch
folder = sys.argv[1]
x = torch.arange(24.)
shared = torch.arange(6.)
for protocol in (2, 3, 4, 5):
    torch.save({"t": x.reshape(2, 3, 4).permute(2, 0, 1), "empty": torch.zeros(3, 0), "part": x[5:9], "shared": shared,
                "again": shared.view(2, 3), "number": numpy.float64(0.1), "count": numpy.int64(-7),
                "Counter": collections.Counter("aab"), "bool": torch.tensor([True, False]), "scalar": torch.tensor(2.5),
                "parameter": torch.nn.Parameter(torch.ones(2)), "size": x.shape, "big": 2**80, "bytes": b"ab",
                "one": torch.ones(1, 3, 1).transpose(0, 1), "state": torch.nn.BatchNorm1d(2).state_dict()},
               folder + f"/{protocol}.pt", pickle_protocol=protocol)
torch.save({"dtype": torch.float32}, folder + "/dtype.pt")
torch.save({"fraction": fractions.Fraction(1, 2)}, folder + "/fraction.pt")
torch.save(torch.ones(3)[::2], folder + "/stride.pt")
"""


def test_files_of_pytorch(tmp_path):
    if subprocess.run([sys.executable, "-c", PYTORCH, str(tmp_path)], capture_output=True).returncode:
        pytest.skip("PyTorch is missing")
    x = torch.arange(24.)
    for protocol in (2, 3, 4, 5):
        file = tmp_path / f"{protocol}.pt"
        read = torch.load(file)
        assert read["t"].tolist() == x.reshape(2, 3, 4).permute(2, 0, 1).tolist() and read["t"].shape == (4, 2, 3)
        assert read["empty"].shape == (3, 0) and read["part"].tolist() == [5, 6, 7, 8]
        assert read["shared"].tolist() == [0, 1, 2, 3, 4, 5] and read["again"].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert read["number"] == 0.1 and read["count"] == -7 and read["Counter"] == collections.Counter("aab")
        assert [bool(b) for b in read["bool"].tolist()] == [True, False] and read["scalar"].item() == 2.5
        assert read["parameter"].tolist() == [1, 1] and read["size"] == (24,) and read["big"] == 2**80
        assert read["bytes"] == b"ab" and read["one"].shape == (3, 1, 1)
        assert list(read["state"]) == ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
        for cut in range(0, file.stat().st_size, 97):
            (tmp_path / "cut.pt").write_bytes(file.read_bytes()[:cut])
            with pytest.raises(torch.Error):
                torch.load(tmp_path / "cut.pt")
    for name, part in (("dtype", "torch.float32"), ("fraction", "fractions.Fraction"), ("stride", r"strides \(2,\)")):
        with pytest.raises(torch.Error, match=part):
            torch.load(tmp_path / f"{name}.pt")


def archive(pickled, storages=(), compression=zipfile.ZIP_STORED, **entries):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as out:
        out.writestr("archive/data.pkl", pickled)
        for i, data in enumerate(storages):
            out.writestr(f"archive/data/{i}", data)
        for name, data in entries.items():
            out.writestr(f"archive/{name}", data)
    return file.getvalue()


def tensor(size, stride, offset=0, kind="FloatStorage", module="torch"):
    """The opcodes of a tensor of storage 0."""
    def value(v):
        if isinstance(v, tuple):
            return b"(" + b"".join(map(value, v)) + b"t"
        return pickle.dumps(v, protocol=2)[2:-1]

    storage = b"(" + value("storage") + f"c{module}\n{kind}\n".encode() + value("0") + value("cpu") + value(6) + b"tQ"
    place = storage + value(offset) + value(size) + value(stride)
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + place + b"\x89)tR"


@pytest.mark.parametrize("pickled, part", [
    (tensor(("9" * 400,), (1,)), "no whole numbers"),
    (tensor((True, 2), (2, 1)), "no whole numbers"),
    (tensor((-1,), (1,)), "no whole numbers"),
    (tensor((7,), (1,)), "outside its storage"),
    (tensor((2**62, 4), (4, 1)), "outside its storage"),
    (tensor((3,), (1,), offset=4), "outside its storage"),
    (tensor((3,), (0,)), "contiguous"),
    (tensor((3, 2), (2,)), "no whole numbers"),
    (tensor((2,), (1,), kind="QInt8Storage"), "torch.QInt8Storage"),
    (tensor((2,), (1,), module="os"), "os.FloatStorage"),
    (b"cos\nsystem\n(X\x02\x00\x00\x00idtR", "os.system"),
    (b"cbuiltins\neval\n(X\x01\x00\x00\x001tR", "builtins.eval"),
    (b"\x8c\x02os\x8c\x06system\x93(X\x02\x00\x00\x00idtR", "os.system"),
    (b"ctorch\nSize\nctorch\nSize\n\x85R", "damaged"),
    (b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x05\x00\x00\x00idnaatR", "_codecs.encode"),
    (b"cnumpy\ndtype\n(X\x02\x00\x00\x00O8\x89\x88tR", "numpy.dtype"),
    (b"}q\x00.}", None),
    (b"(((", "damaged"),
    (b"h\x05", "damaged"),
    (b"s", "damaged"),
    (b"\x85", "damaged"),
    (b"R", "damaged"),
    (b"Nb", "damaged"),
    (b"I" + b"9" * 100000 + b"\n", "damaged"),
    (b"\x8b\xff\xff\xff\x7f", "damaged"),
    (b"]r\x00\x00\x00\x40", None),
    (b"i__main__\nA\n", "pickle's INST"),
])
def test_a_pickle_runs_no_code_and_takes_no_memory(pickled, part):
    pickled = b"\x80\x02" + pickled + b"."
    data = archive(pickled, [struct.pack("<6f", *range(6))])
    if part is None:
        torch.load(io.BytesIO(data))
    else:
        with pytest.raises(torch.Error, match=part):
            torch.load(io.BytesIO(data))


def test_what_an_archive_unpacks_to_is_limited():
    bomb = archive(b"\x80\x02" + tensor((5,), (1,)) + b".", [bytes(1 << 27)], zipfile.ZIP_DEFLATED)
    with pytest.raises(torch.Error, match="would unpack"):
        torch.load(io.BytesIO(bomb))
    slow = archive(b"\x80\x02" + b"N0" * (1 << 21) + b"N.", (), zipfile.ZIP_DEFLATED)
    with pytest.raises(torch.Error, match="would unpack"):
        torch.load(io.BytesIO(slow))
    storage = bytes(1 << 20)
    many = b"\x80\x02(" + tensor((1 << 18,), (1,)) * 40 + b"l."
    with pytest.raises(torch.Error, match="16 times the bytes"):
        torch.load(io.BytesIO(archive(many, [storage])))
    twice = b"\x80\x02(" + tensor((1 << 18,), (1,)) * 2 + b"l."
    assert len(torch.load(io.BytesIO(archive(twice, [storage])))) == 2
    with pytest.raises(torch.Error, match="byte order"):
        torch.load(io.BytesIO(archive(twice, [storage], byteorder="big")))
    with pytest.raises(torch.Error, match="no storage"):
        torch.load(io.BytesIO(archive(twice)))


def test_load_raises_errors_of_one_class(monkeypatch):
    data = archive(b"\x80\x02N.")
    for failure in (MemoryError(), KeyError("x"), IndexError("y"), OSError(5, "Input/output error")):
        def fail(self, _, failure=failure):
            raise failure
        monkeypatch.setattr("lockstep.torch_files._Machine.run", fail)
        with pytest.raises(torch.Error, match=f"is damaged: {type(failure).__name__}"):
            torch.load(io.BytesIO(data))
    for name in ("parse_safetensors", "read_safetensors"):
        def exhausted(*_):
            raise MemoryError
        monkeypatch.setattr(torch._core.internal, name, exhausted)
    with pytest.raises(torch.Error, match="the file cannot be read: MemoryError"):
        torch.load(io.BytesIO(b"\x02\0\0\0\0\0\0\0{}"))
    with pytest.raises(TypeError, match="open for reading bytes"):
        torch.load(io.StringIO("text"))
    with pytest.raises(FileNotFoundError):
        torch.load("/no/such/file")


def test_damaged_structures_are_errors():
    file = io.BytesIO()
    torch.save({"a": torch.ones(2)}, file)
    contents = file.getvalue()
    size, = struct.unpack("<Q", contents[:8])
    header = json.loads(contents[8 : 8 + size])
    for structure in ({"array": ["a", "S2000000000"]}, {"array": ["a", "O8"]}, {"array": ["a"]}, {"tensor": "b"},
                      {"list": [{"array": ["a", "<f8"]}] * 2}, {}, [], {"list": 3}, {"dict": [[1]]},
                      {"dict": [[[], {"value": 1}]]}, {"leaf": "a", "value": 1}, "text", None, {"else": 3}):
        changed = dict(header, __metadata__={"lockstep.structure": json.dumps(structure)})
        text = json.dumps(changed).encode()
        text += b" " * (-len(text) % 8)
        with pytest.raises(torch.Error, match="lockstep.structure is damaged"):
            torch.load(io.BytesIO(struct.pack("<Q", len(text)) + text + contents[8 + size :]))
    deep = '{"list":[' * 100000 + '{"value":1}' + "]}" * 100000
    text = json.dumps(dict(header, __metadata__={"lockstep.structure": deep})).encode()
    text += b" " * (-len(text) % 8)
    with pytest.raises(torch.Error, match="damaged"):
        torch.load(io.BytesIO(struct.pack("<Q", len(text)) + text + contents[8 + size :]))


def test_mutated_files_are_read_or_refused():
    """Flips, cuts, and inserts bytes: no exception but Error, no long time, no more memory than the files' 200 MB."""
    draw = random.Random(SEED)
    good = [archive(pickle.dumps({"a": [1, 2.5, "x", None, (True, {"b": -3})], 7: "y" * 40}, protocol=protocol))
            for protocol in (2, 4)]
    good.append(archive(b"\x80\x02(" + tensor((2, 3), (3, 1)) + tensor((3, 2), (1, 3)) + b"l.", [bytes(24)]))
    for value in ({"a": torch.ones(2), "b": [1, {"c": torch.zeros(2, 2)}]}, [torch.arange(3), 2.5, "t"]):
        file = io.BytesIO()
        torch.save(value, file)
        good.append(file.getvalue())
    for case in range(10 * CASES):
        data = bytearray(draw.choice(good))
        if data[:2] == b"PK" and draw.random() < 0.8:  # so that checksums are right
            pickled = bytearray(zipfile.ZipFile(io.BytesIO(data)).read("archive/data.pkl"))
            mutate(pickled, draw)
            data = archive(bytes(pickled), [bytes(24)])
        else:
            mutate(data, draw)
        try:
            torch.load(io.BytesIO(bytes(data)))
        except torch.Error:
            pass
        except Exception as error:
            raise AssertionError(f"seed {SEED}, case {case}: {bytes(data)!r}") from error
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2_000_000


def mutate(data, draw):
    for _ in range(draw.randrange(1, 4)):
        at = draw.randrange(len(data)) if data else 0
        kind = draw.randrange(4)
        if kind == 0 and data:
            data[at] ^= 1 << draw.randrange(8)
        elif kind == 1 and data:
            data[at] = draw.choice(b"\x00\xff.(tRQcqr}]sueb\x85\x86\x87\x80\x8a\x8b\x93")
        elif kind == 2:
            data[at:at] = bytes(draw.choices(range(256), k=draw.randrange(1, 5)))
        else:
            del data[at : at + draw.randrange(1, 9)]


def test_files_of_pytorch_keep_what_is_trained_and_what_is_empty():
    peer = pytest.importorskip("torch", reason="PyTorch, whose files are read, is not installed")
    file = io.BytesIO()
    matrix = peer.arange(6.0).reshape(2, 1, 3)
    peer.save({"none": peer.zeros(0, 3), "leaf": peer.ones(2, requires_grad=True), "other": peer.ones(1),
               "parameter": peer.nn.Parameter(peer.ones(1)), "frozen": peer.nn.Parameter(peer.ones(1), False),
               "turned": matrix.permute(2, 1, 0), "empty": peer.zeros(2, 0, 3).permute(2, 0, 1)}, file)
    file.seek(0)
    x = torch.load(file)
    assert [name for name in x if x[name].requires_grad] == ["leaf", "parameter"]
    assert x["none"].shape == (0, 3) and x["empty"].shape == (3, 2, 0)
    assert x["turned"].tolist() == matrix.permute(2, 1, 0).tolist()
