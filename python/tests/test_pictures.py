import math
import struct
import zlib

import pytest

import lockstep as torch
from lockstep import datasets
from lockstep.utils import make_grid, save_image
from lockstep.utils.tensorboard import SummaryWriter

numpy = pytest.importorskip("numpy")


def events(path):
    """The records of a file of TensorBoard."""
    data, found = path.read_bytes(), []
    while data:
        n, = struct.unpack("<Q", data[:8])
        found.append(data[12:12 + n])
        data = data[16 + n:]
    return found


def fields(message):
    """The fields of a message: number -> values, each an int, 8 or 4 bytes, or bytes."""
    found, i = {}, 0

    def varint():
        nonlocal i
        n = shift = 0
        while True:
            byte = message[i]
            i += 1
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return n

    while i < len(message):
        key = varint()
        if key & 7 == 0:
            value = varint()
        else:
            n = {1: 8, 5: 4}.get(key & 7)
            n = varint() if n is None else n
            value, i = message[i:i + n], i + n
        found.setdefault(key >> 3, []).append(value)
    return found


def values(path):
    """(tag, step, time, fields of the value) of each event."""
    for record in events(path)[1:]:
        event = fields(record)
        if 5 in event:
            value = fields(fields(event[5][0])[1][0])
            yield value[1][0].decode(), event.get(2, [0])[0], struct.unpack("<d", event[1][0])[0], value


def scalars(folder):
    path, = folder.glob("events*")
    return [(tag, step, struct.unpack("<f", value[2][0])[0]) for tag, step, _, value in values(path)]


def test_curves(tmp_path):
    with SummaryWriter(tmp_path) as board:
        board.add_scalar("loss", torch.tensor(0.5), 3, walltime=12.5)
        board.add_scalar("loss", numpy.float64(0.25))
        board.add_scalars("both", {"a/b": 1, "c": 2.5}, 7)
        assert board.get_logdir() == board.log_dir == str(tmp_path)
    assert scalars(tmp_path) == [("loss", 3, 0.5), ("loss", 0, 0.25)]
    times = [time for _, _, time, _ in values(board.path)]
    assert times[0] == 12.5 and times[1] > 1e9
    assert scalars(tmp_path / "both_a_b") == [("both", 7, 1)] and scalars(tmp_path / "both_c") == [("both", 7, 2.5)]
    with pytest.raises(ValueError, match="filename_suffix"):
        SummaryWriter(tmp_path, filename_suffix=".x")


def test_log_dir_follows_from_the_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    board = SummaryWriter(comment="_try")
    assert board.log_dir.startswith("runs/") and board.log_dir.endswith("_try") and board.path.exists()


def sizes(path):
    found = []
    for tag, _, _, value in values(path):
        image = fields(value[4][0])
        found.append((tag, image[1][0], image[2][0], image[3][0]))
    return found


def test_pictures(tmp_path):
    board = SummaryWriter(tmp_path)
    board.add_image("chw", torch.rand(3, 4, 5))
    board.add_image("hwc", numpy.zeros((4, 5, 3), numpy.uint8), 1, dataformats="HWC")
    board.add_image("wh", numpy.zeros((4, 5)), dataformats="WH")
    board.add_images("nchw", torch.rand(10, 1, 4, 5))
    board.add_images("nhwc", numpy.zeros((3, 4, 5, 3)), dataformats="NHWC")
    assert sizes(board.path) == [("chw", 4, 5, 3), ("hwc", 4, 5, 3), ("wh", 5, 4, 1), ("nchw", 8, 40, 1),
                                 ("nhwc", 4, 15, 3)]
    with pytest.raises(ValueError, match="expected an axis for each of C, H, W"):
        board.add_image("wrong", torch.rand(3, 4), dataformats="CHW")
    with pytest.raises(ValueError, match="N, C, H, W"):
        board.add_images("wrong", torch.rand(3, 4, 5))


def test_figures(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    board = SummaryWriter(tmp_path)
    board.add_figure("one", pyplot.figure(figsize=(2, 1), dpi=50))
    assert sizes(board.path) == [("one", 50, 100, 3)] and not pyplot.get_fignums()


def test_hyperparameters(tmp_path):
    board = SummaryWriter(tmp_path)
    board.add_hparams({"lr": 0.1, "bn": True, "name": "net", "n": 3}, {"accuracy": 0.5}, run_name="first")
    path, = (tmp_path / "first").glob("events*")
    messages = {tag: fields(fields(fields(value[9][0])[1][0])[2][0]) for tag, _, _, value in values(path) if 9 in value}
    assert all(fields(fields(value[9][0])[1][0])[1] == [b"hparams"] for _, _, _, value in values(path) if 9 in value)
    infos = [fields(info) for info in fields(messages["_hparams_/experiment"][2][0])[4]]
    assert [(info[1][0].decode(), info[4][0]) for info in infos] == [("lr", 3), ("bn", 2), ("name", 1), ("n", 3)]
    start = fields(messages["_hparams_/session_start_info"][3][0])[1]
    found = {fields(entry)[1][0].decode(): fields(fields(entry)[2][0]) for entry in start}
    assert found == {"lr": {2: [struct.pack("<d", 0.1)]}, "bn": {4: [1]}, "name": {3: [b"net"]},
                     "n": {2: [struct.pack("<d", 3)]}}
    assert fields(messages["_hparams_/session_end_info"][4][0]) == {1: [1]}
    assert [(tag, step) for tag, step, _, value in values(path) if 2 in value] == [("accuracy", 0)]
    with pytest.raises(ValueError, match="lr is a list"):
        board.add_hparams({"lr": [1]}, {})


GRIDS = [dict(), dict(nrow=2), dict(padding=0, nrow=3), dict(pad_value=0.5), dict(normalize=True),
         dict(normalize=True, value_range=(0.2, 0.7)), dict(normalize=True, scale_each=True)]


@pytest.mark.parametrize("options", GRIDS, ids=str)
@pytest.mark.parametrize("shape", [(5, 1, 3, 4), (5, 3, 2, 2), (1, 1, 3, 4), (1, 3, 4), (3, 4)], ids=str)
def test_grids_are_torchvisions(shape, options):
    peer = pytest.importorskip("torch")
    utils = pytest.importorskip("torchvision.utils")
    x = numpy.random.RandomState(0).rand(*shape).astype(numpy.float32)
    expected = utils.make_grid(peer.from_numpy(x), **options).numpy()
    numpy.testing.assert_allclose(make_grid(torch.from_numpy(x), **options).numpy(), expected, atol=1e-6)


def test_a_grid_is_written(tmp_path):
    image = pytest.importorskip("PIL.Image")
    x = torch.arange(8).reshape(2, 1, 2, 2) / 7
    save_image(x, tmp_path / "x.png", padding=1)
    found = numpy.array(image.open(tmp_path / "x.png"))
    assert found.shape == (4, 7, 3) and found[1, 1:3, 0].tolist() == [0, 36] and found[2, 4:6, 1].tolist() == [219, 255]
    assert math.prod(make_grid(x).shape) == 3 * 6 * 10
    with pytest.raises(ValueError, match="ends with .png"):
        save_image(x, tmp_path / "x.jpg")


def test_a_small_file_of_many_pixels_needs_an_option(tmp_path):
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    edge = 9000  # a bit for each pixel, all black
    png = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", edge, edge, 1, 0, 0, 0, 0))
           + chunk(b"IDAT", zlib.compress(bytes((edge // 8 + 1) * edge), 9)) + chunk(b"IEND", b""))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes(png)
    folder = datasets.ImageFolder(tmp_path, channels=1)
    with pytest.raises(torch.Error, match="9000 x 9000 pixels: takes 81027000 bytes of memory.*max_pixels = 81000000"):
        folder[0]
    assert datasets.ImageFolder(tmp_path, channels=1, max_pixels=81_000_000)[1][0].shape == (1, edge, edge)
    listed = datasets.ImageFolder(tmp_path, is_valid_file=lambda path: True, max_pixels=81_000_000)
    assert listed[1][0].shape == (3, edge, edge)
    with pytest.raises(torch.Error, match="the limit .max_pixels. is 80999999"):
        datasets.ImageFolder(tmp_path, channels=1, max_pixels=80_999_999)[0]
    with pytest.raises(ValueError, match="max_pixels is 0"):
        datasets.ImageFolder(tmp_path, max_pixels=0)
