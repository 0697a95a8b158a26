import pytest

import lockstep as torch
from lockstep import transforms
from lockstep.transforms import functional as F

numpy = pytest.importorskip("numpy")


def picture(channels=3, height=7, width=9, seed=0):
    return numpy.random.RandomState(seed).randint(0, 256, (channels, height, width)).astype(numpy.uint8)


CASES = [
    ("pad", (2,)), ("pad", ([1, 2],), {"fill": 7}), ("pad", ([1, 2, 3, 0],), {"padding_mode": "edge"}),
    ("pad", ([3, 2],), {"padding_mode": "reflect"}), ("pad", ([4, 2, 1, 3],), {"padding_mode": "symmetric"}),
    ("rgb_to_grayscale", ()), ("rgb_to_grayscale", (3,)), ("crop", (1, 2, 3, 4)), ("crop", (-1, -2, 5, 20)),
    ("center_crop", ([3, 4],)), ("center_crop", ([10, 4],)), ("five_crop", ([3, 4],)), ("ten_crop", ([3, 4],)),
    ("ten_crop", ([3, 4],), {"vertical_flip": True}), ("hflip", ()), ("vflip", ()), ("invert", ()),
    ("gaussian_blur", ([3, 5],)), ("gaussian_blur", ([5, 3], [0.5, 1.5])), ("adjust_brightness", (1.5,)),
    ("adjust_contrast", (0.3,)), ("adjust_saturation", (1.7,)), ("adjust_gamma", (0.7,)),
    ("affine", (30, [1, 2], 1.2, [10.0, 5.0])), ("affine", (-75.5, [0, 0], 0.7, [0.0]), {"fill": [3.0]}),
    ("affine", (45, [2, -1], 1.0, [0.0, 0.0]), {"interpolation": "bilinear", "fill": [9.0], "center": [2, 3]}),
    ("perspective", ([[0, 0], [8, 0], [8, 6], [0, 6]], [[1, 1], [7, 0], [8, 5], [1, 6]])),
    ("perspective", ([[0, 0], [8, 0], [8, 6], [0, 6]], [[1, 0], [7, 1], [6, 5], [0, 6]]),
     {"interpolation": "nearest", "fill": [5.0]}),
]


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_functions_are_torchvisions(case, dtype):
    peer = pytest.importorskip("torch")
    tv = pytest.importorskip("torchvision.transforms")
    name, arguments, options = (*case, {})[:3]
    theirs = dict(options)
    if "interpolation" in theirs:
        theirs["interpolation"] = tv.InterpolationMode(theirs["interpolation"])
    x = picture() if dtype == "uint8" else picture().astype(numpy.float32) / 255
    expected = getattr(tv.functional, name)(peer.from_numpy(x), *arguments, **theirs)
    found = getattr(F, name)(torch.from_numpy(x), *arguments, **options)
    for a, b in zip(found, expected) if isinstance(expected, tuple) else [(found, expected)]:
        assert a.numpy().dtype == b.numpy().dtype
        if dtype == "uint8":
            # A half may be rounded up or down: sums are added in another order.
            assert numpy.abs(a.numpy().astype(int) - b.numpy().astype(int)).max() <= (name == "gaussian_blur")
        else:
            numpy.testing.assert_allclose(a.numpy(), b.numpy(), atol=2e-5)


def test_functions_have_these_values():
    x = torch.arange(6, dtype=torch.uint8).reshape(1, 2, 3)
    assert F.pad(x, [1, 0], padding_mode="reflect").tolist() == [[[1, 0, 1, 2, 1], [4, 3, 4, 5, 4]]]
    assert F.pad(x, [1, 0, 0, 1], 9).tolist() == [[[9, 0, 1, 2], [9, 3, 4, 5], [9, 9, 9, 9]]]
    assert F.five_crop(x, [1, 2])[3].tolist() == [[[4, 5]]]
    assert F.affine(x, 180, [0, 0], 1.0, [0.0]).tolist() == [[[5, 4, 3], [2, 1, 0]]]
    assert F.affine(x, 0, [1, 0], 1.0, [0.0], fill=[7.0]).tolist() == [[[7, 0, 1], [7, 3, 4]]]
    assert F.rgb_to_grayscale(torch.tensor([100, 50, 200], dtype=torch.uint8).reshape(3, 1, 1)).item() == 82
    assert F.gaussian_blur(torch.eye(3).unsqueeze(0), 3, 1.0)[0, 1, 1].item() == pytest.approx(0.3545, abs=1e-4)


@pytest.mark.parametrize("source", ["uint8", "int64", "float32", "float64"])
@pytest.mark.parametrize("target", ["uint8", "int64", "float32", "float64"])
def test_types_are_converted_as_in_torchvision(source, target):
    peer = pytest.importorskip("torch")
    tv = pytest.importorskip("torchvision.transforms")
    x = numpy.array([0, 1, 127, 255])
    x = x / 255 if "float" in source else x * (2**55 if source == "int64" else 1)
    x = x.astype(source)
    try:
        expected = tv.functional.convert_image_dtype(peer.from_numpy(x), getattr(peer, target)).numpy()
    except RuntimeError:
        with pytest.raises(RuntimeError, match="cannot be performed safely"):
            transforms.ConvertImageDtype(getattr(torch, target))(torch.from_numpy(x))
        return
    found = transforms.ConvertImageDtype(getattr(torch, target))(torch.from_numpy(x)).numpy()
    assert found.dtype == expected.dtype
    numpy.testing.assert_allclose(found, expected, rtol=1e-6)


def test_pil_pictures():
    image = pytest.importorskip("PIL.Image")
    x = picture()
    pil = transforms.ToPILImage()(torch.from_numpy(x))
    assert pil.mode == "RGB" and numpy.array_equal(numpy.array(pil), x.transpose(1, 2, 0))
    assert transforms.PILToTensor()(pil).tolist() == x.tolist()
    with pytest.raises(TypeError, match="should be PIL Image"):
        transforms.PILToTensor()(torch.from_numpy(x))
    assert transforms.ToPILImage()(torch.full((1, 2, 2), 0.5)).getpixel((0, 0)) == 127
    assert transforms.ToPILImage("F")(numpy.ones((2, 2, 1), numpy.float32)).mode == "F"
    assert transforms.Grayscale()(image.new("RGB", (3, 2), (100, 50, 200))).tolist() == [[[82] * 3] * 2]
    with pytest.raises(ValueError, match="mode L of uint8"):
        transforms.ToPILImage("L")(torch.from_numpy(x))


RANDOM = [transforms.RandomGrayscale(0.5), transforms.GaussianBlur(3),
          transforms.RandomAffine(30, (0.2, 0.1), (0.8, 1.2), 10),
          transforms.RandomPerspective(),
          transforms.RandomApply([transforms.Pad(1), transforms.CenterCrop(5), transforms.Pad(1)]),
          transforms.RandomOrder([transforms.Grayscale(3), transforms.RandomHorizontalFlip()]),
          transforms.RandomChoice([transforms.RandomVerticalFlip(1.0), transforms.Grayscale(3)])]


class Pictures(torch.utils.data.Dataset):
    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 24

    def __getitem__(self, i):
        return self.transform(torch.from_numpy(picture(3, 7, 7, i)))


# What is drawn follows from the seed, the epoch, and the example, not from the workers.
@pytest.mark.parametrize("transform", RANDOM, ids=lambda t: type(t).__name__)
def test_draws_follow_the_example(transform):
    epochs = {}
    for workers in (0, 3):
        torch.manual_seed(1)
        loader = torch.utils.data.DataLoader(Pictures(transform), 5, num_workers=workers)
        epochs[workers] = [torch.cat(list(loader)).tolist() for _ in range(2)]
    assert epochs[0] == epochs[3] and epochs[0][0] != epochs[0][1]
    torch.manual_seed(1)
    outside = [transform(torch.from_numpy(picture(3, 7, 7))).tolist() for _ in range(20)]
    torch.manual_seed(1)
    assert outside == [transform(torch.from_numpy(picture(3, 7, 7))).tolist() for _ in range(20)]
    assert any(x != outside[0] for x in outside)


def test_probabilities():
    torch.manual_seed(0)
    x = torch.from_numpy(picture())
    gray = sum(torch.equal(y[0], y[1]) for y in (transforms.RandomGrayscale(0.2)(x) for _ in range(1000)))
    assert 150 < gray < 250
    choice = transforms.RandomChoice([lambda _: "a", lambda _: "b", lambda _: "c"], p=[1, 2, 1])
    names = [choice(x) for _ in range(1000)]
    assert 430 < names.count("b") < 570 and 190 < names.count("a") < 310
    orders = {transforms.RandomOrder([lambda t: t + "a", lambda t: t + "b", lambda t: t + "c"])("") for _ in range(100)}
    assert len(orders) == 6
    applied = sum(transforms.RandomApply([lambda _: 1], p=0.3)(0) for _ in range(1000))
    assert 250 < applied < 350


def test_refused():
    x = torch.from_numpy(picture())
    for make, text in [(lambda: transforms.GaussianBlur(4), "odd"),
                       (lambda: transforms.GaussianBlur(3, (2, 1)), "sigma"),
                       (lambda: transforms.FiveCrop(20)(x), "bigger than input"),
                       (lambda: F.pad(x, [1, 2, 3]), "3 element"),
                       (lambda: F.pad(x, 9, padding_mode="reflect"), "expected less than 7"),
                       (lambda: transforms.RandomAffine(-1), "positive"),
                       (lambda: transforms.RandomAffine(1, interpolation="bicubic")(x), "'bicubic', expected")]:
        with pytest.raises(ValueError, match=text):
            make()
    with pytest.raises(RuntimeError, match="'bicubic', expected 'bilinear' or 'nearest'"):
        transforms.Resize(4, transforms.InterpolationMode.BICUBIC)


# Bits are no bytes: they stay as they are.
def test_bits_stay_bits():
    image = pytest.importorskip("PIL.Image")
    bits = numpy.array([[True, False], [False, True]])
    found = transforms.ToTensor()(bits)
    assert found.dtype == torch.bool and found.tolist() == [[[True, False], [False, True]]]
    with pytest.raises(torch.Error, match="bool on host, expected u8 or f32"):
        transforms.RandomHorizontalFlip(1.0)(bits)
    assert transforms.ToTensor()(image.fromarray(bits)).tolist() == [[[1, 0], [0, 1]]]


def test_pictures_of_any_type():
    bits = torch.tensor([[[True, False]]])
    assert F.convert_image_dtype(bits, torch.float32).tolist() == [[[1, 0]]]
    assert F.convert_image_dtype(bits, torch.uint8).tolist() == [[[128, 0]]]  # as torchvision
    bright = torch.tensor([[[200, 3]]])
    assert F.adjust_brightness(bright, 2).tolist() == [[[255, 6]]]
    x = torch.rand(3, 2, 2)
    same = F.normalize(x.double(), [0.5, 0.25, 0.1], [0.5, 2, 3])
    assert same.dtype == torch.float64 and torch.allclose(same.float(), F.normalize(x, [0.5, 0.25, 0.1], [0.5, 2, 3]))
    for size in ((2, 2, 2), ()):
        with pytest.raises(ValueError, match="expected one number, or a height and a width"):
            F.center_crop(x, size)
    with pytest.raises(ValueError, match=r"expected \[.., channels, height, width\]"):
        F.normalize(x[0], [0.5], [0.5])


class Five(transforms.RandomHorizontalFlip):
    def forward(self, image):
        return image * 0 + 5


def test_a_class_may_override_forward():
    x = torch.ones(3, 4, 4)
    assert Five()(x).tolist() == transforms.Compose([Five(1.0)])(x).tolist() == (x * 5).tolist()

    class Twice(transforms.RandomCrop):
        def forward(self, image):
            return super().forward(image) * 2

    for transform in (Twice(2), transforms.Compose([transforms.ToTensor(), Twice(2)])):
        assert transform(x).tolist() == [[[2, 2]] * 2] * 3
    flip = transforms.RandomHorizontalFlip()
    flip.forward = lambda image: "own"
    assert flip(x) == transforms.Compose([flip])(x) == "own"

    class Apply(transforms.RandomApply):
        def forward(self, image):
            return "applied"

    assert Apply([])(x) == "applied"


@pytest.mark.parametrize("base,arguments", [(transforms.RandomCrop, (2,)), (transforms.GaussianBlur, (3,)),
                                            (transforms.RandomAffine, (3,)), (transforms.RandomPerspective, ())])
def test_get_params_that_would_be_ignored_is_an_error(base, arguments):
    class Own(base):
        @staticmethod
        def get_params(*arguments):
            return 0, 0, 2, 2

    x = torch.ones(3, 4, 4)
    for transform in (Own(*arguments), transforms.Compose([Own(*arguments)])):
        with pytest.raises(torch.Error, match=r"Own: get_params\(\) is not called"):
            transform(x)

    class Calls(Own):
        def forward(self, image):
            return self.get_params(image)

    assert transforms.Compose([Calls(*arguments)])(x) == (0, 0, 2, 2)


def test_the_list_of_compose_may_be_edited():
    steps = [transforms.CenterCrop(2)]
    both = transforms.Compose(steps)
    steps.append(lambda image: image + 1)
    assert both(torch.zeros(1, 3, 3)).tolist() == [[[1, 1]] * 2]
    drained = transforms.Compose(t for t in steps)
    assert drained(torch.zeros(1, 3, 3)).tolist() == drained(torch.zeros(1, 3, 3)).tolist() == [[[1, 1]] * 2]
