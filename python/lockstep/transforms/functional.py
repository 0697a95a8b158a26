"""Transforms of a picture [.., channels, height, width], under torchvision's names.

>>> from lockstep.transforms import functional as F
>>> y = F.affine(x, angle=10, translate=[2, 0], scale=1.1, shear=[0.0])

Results are those of torchvision for tensors. PIL pictures and arrays [height, width, channels] become tensors.
"""

import enum
import math

from .. import _core
from .._core import Tensor
from ..composed import iinfo
from ..nn import functional as _F


class InterpolationMode(enum.Enum):
    """How a new pixel is computed from the old ones."""

    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"


def picture(image):
    """Return a PIL picture or an array [height, width, channels] as a tensor [channels, height, width]."""
    if isinstance(image, Tensor):
        # Gluon's arrays have channels last. The result of a transform is a plain tensor, whose channels are first.
        channels_last = getattr(image, "_pictures_have_channels_last", False) and image.ndim == 3
        return Tensor.permute(image, 2, 0, 1).contiguous() if channels_last and image.dtype == _core.uint8 else image
    import numpy

    # A 1-bit PIL picture is converted to black and white bytes.
    array = numpy.array(image.convert("L") if getattr(image, "mode", None) == "1" else image)
    if array.ndim == 2:
        array = array[:, :, None]
    return _core.from_numpy(numpy.ascontiguousarray(array.transpose(2, 0, 1)))


def get_dimensions(img):
    """Return [channels, height, width]."""
    img = picture(img)
    return [1 if img.ndim == 2 else img.size(-3), img.size(-2), img.size(-1)]


def get_image_size(img):
    """Return [width, height]."""
    return get_dimensions(img)[:0:-1]


def get_image_num_channels(img):
    """Return the number of channels."""
    return get_dimensions(img)[0]


# ---- Types


def pil_to_tensor(pic):
    """Return a PIL picture as bytes [channels, height, width]."""
    if isinstance(pic, Tensor) or not hasattr(pic, "getbands"):
        raise TypeError(f"pic should be PIL Image. Got {type(pic)}")
    return picture(pic)


def to_tensor(pic):
    """Return a PIL picture or an array as a tensor: float32 in 0 to 1 of bytes, other types as they are."""
    from . import ToTensor

    return ToTensor()(pic)


def to_pil_image(pic, mode=None):
    """Return a picture [channels, height, width], or an array [height, width, channels], as a PIL picture."""
    import numpy
    from PIL import Image

    if isinstance(pic, Tensor):
        if pic.ndim not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
        pic = pic.unsqueeze(0) if pic.ndim == 2 else pic
        if pic.size(0) > 4:
            raise ValueError(f"pic should not have > 4 channels. Got {pic.size(0)} channels.")
        if pic.is_floating_point() and mode != "F":
            pic = (pic * 255).byte()
        array = pic.detach().cpu().permute(1, 2, 0).contiguous().numpy()
    elif isinstance(pic, numpy.ndarray):
        array = pic[:, :, None] if pic.ndim == 2 else pic
    else:
        raise TypeError(f"pic should be Tensor or ndarray. Got {type(pic)}.")
    of_channels = {1: ("L",), 2: ("LA",), 3: ("RGB", "YCbCr", "HSV"), 4: ("RGBA", "CMYK", "RGBX")}[array.shape[2]]
    if array.shape[2] == 1:
        array = array[:, :, 0]
        of_channels = ({"uint8": "L", "int16": "I;16", "int32": "I", "float32": "F"}.get(array.dtype.name),)
    if (mode or of_channels[0]) not in of_channels or of_channels[0] is None:
        raise ValueError(f"to_pil_image: mode {mode} of {array.dtype} {array.shape}, expected {of_channels}")
    mode = mode or of_channels[0]
    if mode in ("L", "I;16", "I", "F"):
        return Image.fromarray(array)
    return Image.frombytes(mode, array.shape[1::-1], numpy.ascontiguousarray(array.astype(numpy.uint8)).tobytes())


def _limit(dtype):
    return 1 if dtype == _core._bool else iinfo(dtype).max


def convert_image_dtype(image, dtype=_core.float32):
    """Return the picture in another type, scaled to its range: floating types have 0 to 1."""
    if image.dtype == dtype:
        return image
    floating = getattr(_core.zeros(0, dtype=dtype), "is_floating_point")()
    if image.is_floating_point():
        if floating:
            return image.to(dtype)
        if dtype == _core.int64:
            raise RuntimeError(f"The cast from {image.dtype} to {dtype} cannot be performed safely")
        return (image * (_limit(dtype) + 1.0 - 1e-3)).to(dtype)
    largest = _limit(image.dtype)
    if floating:
        return image.to(dtype) / largest
    other = _limit(dtype)
    if largest > other:
        return image.floor_divide((largest + 1) // (other + 1)).to(dtype)
    return image.to(dtype) * ((other + 1) // (largest + 1))


# Calls the function in f32 with a batch axis, and restores the type and the axes.
def _in_floats(img, function):
    x = img if img.is_floating_point() else img.float()
    y = function(x.reshape(-1, *x.shape[-3:]))
    y = y.reshape(*img.shape[:-3], *y.shape[-3:])
    return y if img.is_floating_point() else y.round().to(img.dtype)


def _largest(img):
    return 1.0 if img.is_floating_point() else 255.0


def normalize(tensor, mean, std, inplace=False):
    """Return (tensor - mean) / std, for each channel."""
    from . import Normalize

    if not tensor.is_floating_point():
        raise TypeError(f"Input tensor should be a float tensor. Got {tensor.dtype}.")
    return Normalize(mean, std, inplace)(tensor)


# ---- Colors


def rgb_to_grayscale(img, num_output_channels=1):
    """Return the luminance, as one channel or three equal ones."""
    img = picture(img)
    if num_output_channels not in (1, 3):
        raise ValueError("num_output_channels should be either 1 or 3")
    if img.ndim < 3 or img.size(-3) not in (1, 3):
        raise TypeError(f"Input image tensor permitted channel values are [1, 3], but found {list(img.shape)}")
    if img.size(-3) == 3:
        r, g, b = img.unbind(-3)
        gray = (0.2989 * r + 0.587 * g + 0.114 * b).to(img.dtype).unsqueeze(-3)
    else:
        gray = img.clone()
    return _core.cat([gray] * 3, -3) if num_output_channels == 3 else gray


to_grayscale = rgb_to_grayscale


def _blend(a, b, ratio):
    return (ratio * a + (1.0 - ratio) * b).clamp(0, _largest(a)).to(a.dtype)


def _factor(name, value):
    if value < 0:
        raise ValueError(f"{name} ({value}) is not non-negative.")
    return float(value)


def adjust_brightness(img, brightness_factor):
    """Return the picture, darker below a factor of 1 and brighter above."""
    img = picture(img)
    return _blend(img, _core.zeros_like(img), _factor("brightness_factor", brightness_factor))


def adjust_contrast(img, contrast_factor):
    """Return the picture with its distances from the mean luminance scaled by the factor."""
    img = picture(img)
    gray = rgb_to_grayscale(img) if img.size(-3) == 3 else img
    mean = gray.to(img.dtype if img.is_floating_point() else _core.float32).mean((-3, -2, -1), keepdim=True)
    return _blend(img, mean, _factor("contrast_factor", contrast_factor))


def adjust_saturation(img, saturation_factor):
    """Return a blend of its luminance (factor 0) and the picture (1); above 1, colors are stronger."""
    img = picture(img)
    if img.size(-3) == 1:
        return img
    return _blend(img, rgb_to_grayscale(img), _factor("saturation_factor", saturation_factor))


def adjust_gamma(img, gamma, gain=1):
    """Return gain * img**gamma, of values in 0 to 1."""
    img = picture(img)
    x = img if img.is_floating_point() else convert_image_dtype(img, _core.float32)
    return convert_image_dtype((gain * x ** _factor("Gamma", gamma)).clamp(0, 1), img.dtype)


def invert(img):
    """Return the largest value minus the picture."""
    img = picture(img)
    return _largest(img) - img if img.is_floating_point() else (255 - img.long()).to(img.dtype)


# ---- Places


def hflip(img):
    """Swap left and right."""
    return picture(img).flip(-1)


def vflip(img):
    """Swap top and bottom."""
    return picture(img).flip(-2)


def _places(n, before, after, mode):
    """Return the source index of each of before + n + after pixels; -1 for none."""
    places = []
    for i in range(-before, n + after):
        if mode == "edge":
            i = min(max(i, 0), n - 1)
        elif mode == "reflect":
            if not -n < i < 2 * n - 1:
                raise ValueError(f"pad: {before} and {after} of {n} pixels by reflection, expected less than {n}")
            i = abs(i) if i < n else 2 * (n - 1) - i
        elif mode == "symmetric":
            if not -n <= i < 2 * n:
                raise ValueError(f"pad: {before} and {after} of {n} pixels by symmetry, expected at most {n}")
            i = -i - 1 if i < 0 else i if i < n else 2 * n - 1 - i
        places.append(i if 0 <= i < n else -1)
    return places


def pad(img, padding, fill=0, padding_mode="constant"):
    """Add pixels on all sides: padding is one number, [left and right, top and bottom], or [left, top, right, bottom].

    padding_mode: "constant" (fill), "edge", "reflect" (without the edge), or "symmetric" (with it). Negative numbers
    remove pixels.
    """
    img = picture(img)
    if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
        raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")
    sides = [padding] if isinstance(padding, int) else list(padding)
    if len(sides) not in (1, 2, 4):
        raise ValueError(f"Padding must be an int or a 1, 2, or 4 element tuple, not a {len(sides)} element tuple")
    left, top, right, bottom = sides * (4 // len(sides))
    rows = _places(img.size(-2), top, bottom, padding_mode)
    columns = _places(img.size(-1), left, right, padding_mode)
    out = img.index_select(-2, _core.tensor([max(i, 0) for i in rows], dtype=_core.int64))
    out = out.index_select(-1, _core.tensor([max(i, 0) for i in columns], dtype=_core.int64))
    if -1 in rows or -1 in columns:
        inside = _core.tensor([[r >= 0 and c >= 0 for c in columns] for r in rows])
        value = fill[0] if isinstance(fill, (tuple, list)) and len(fill) == 1 else fill
        if isinstance(value, (tuple, list)):
            value = _core.tensor(list(value), dtype=img.dtype).reshape(-1, 1, 1)
        out = _core.where(inside, out, value if isinstance(value, Tensor) else _core.full((1,), value, dtype=img.dtype))
    return out


def crop(img, top, left, height, width):
    """Return a window. Pixels outside of the picture are 0."""
    img = picture(img)
    h, w = img.shape[-2:]
    return pad(img, [-left, -top, left + width - w, top + height - h])


def _height_and_width(name, size):
    sizes = (size,) if isinstance(size, (int, float)) else tuple(size)
    if len(sizes) not in (1, 2):
        raise ValueError(f"{name}: the size is {size}, expected one number, or a height and a width")
    return int(sizes[0]), int(sizes[-1])


def center_crop(img, output_size):
    """Return the window in the middle. Pads a smaller picture with 0."""
    img = picture(img)
    height, width = _height_and_width("center_crop", output_size)
    h, w = img.shape[-2:]
    if width > w or height > h:
        dx, dy = max(width - w, 0), max(height - h, 0)
        img = pad(img, [dx // 2, dy // 2, (dx + 1) // 2, (dy + 1) // 2])
        h, w = img.shape[-2:]
    return crop(img, int(round((h - height) / 2.0)), int(round((w - width) / 2.0)), height, width)


def five_crop(img, size):
    """Return the windows in the corners (top left, top right, bottom left, bottom right) and in the middle."""
    img = picture(img)
    height, width = _height_and_width("five_crop", size)
    h, w = img.shape[-2:]
    if width > w or height > h:
        raise ValueError(f"Requested crop size {(height, width)} is bigger than input size {(h, w)}")
    corners = [(0, 0), (0, w - width), (h - height, 0), (h - height, w - width)]
    return (*(crop(img, top, left, height, width) for top, left in corners), center_crop(img, (height, width)))


def ten_crop(img, size, vertical_flip=False):
    """Return the five windows of the picture, and those of the flipped picture."""
    return five_crop(img, size) + five_crop(vflip(img) if vertical_flip else hflip(img), size)


def resize(img, size, interpolation="bilinear", max_size=None, antialias=True):
    """Return the picture in another size, as PIL resizes it; an int is the shorter edge's new length."""
    from . import Resize

    return Resize(size, interpolation, max_size, antialias)(img)


def resized_crop(img, top, left, height, width, size, interpolation="bilinear", antialias=True):
    """Return a window, resized."""
    return resize(crop(img, top, left, height, width), size, interpolation, antialias=antialias)


def erase(img, i, j, h, w, v, inplace=False):
    """Return the picture with the value v in the window of h rows from i and w columns from j."""
    out = img if inplace else img.clone()
    out[..., i:i + h, j:j + w] = v
    return out


# ---- Blur


def gaussian_blur(img, kernel_size, sigma=None):
    """Return the mean of the pixels around each, with the weights of a normal distribution; edges are reflected."""
    img = picture(img)
    sizes = [kernel_size] * 2 if isinstance(kernel_size, int) else (list(kernel_size) * 2)[:2]
    if any(k <= 0 or k % 2 == 0 for k in sizes):
        raise ValueError(f"kernel_size should have odd and positive integers. Got {sizes}")
    if sigma is None:
        sigmas = [k * 0.15 + 0.35 for k in sizes]
    else:
        sigmas = [sigma] * 2 if isinstance(sigma, (int, float)) else (list(sigma) * 2)[:2]
    if any(s <= 0 for s in sigmas):
        raise ValueError(f"sigma should have positive values. Got {sigmas}")
    kernels = []
    for k, s in zip(sizes, sigmas):
        half = (k - 1) * 0.5
        weights = (-0.5 * (_core.linspace(-half, half, k) / s) ** 2).exp()
        kernels.append(weights / weights.sum())
    kernel = _core.mm(kernels[1].unsqueeze(1), kernels[0].unsqueeze(0))
    half = [k // 2 for k in sizes]

    def blur(x):
        c = x.size(1)
        x = pad(x, [half[0], half[1], half[0], half[1]], padding_mode="reflect")
        return _F.conv2d(x, kernel.to(x.dtype).expand(c, 1, *kernel.shape).contiguous(), groups=c)

    return _in_floats(img, blur)


# ---- Affine and perspective


def _sampled(img, grid, interpolation, fill):
    mode = getattr(interpolation, "value", interpolation)
    if mode not in ("nearest", "bilinear"):
        raise ValueError(f"interpolation '{mode}', expected 'nearest' or 'bilinear'")

    def sample(x):
        n, c = x.shape[:2]
        if fill is not None:
            x = _core.cat([x, _core.ones((n, 1, *x.shape[2:]), dtype=x.dtype)], 1)
        y = _F.grid_sample(x, grid.to(x.dtype).expand(n, *grid.shape[1:]).contiguous(), mode=mode,
                           padding_mode="zeros", align_corners=False)
        if fill is None:
            return y
        y, mask = y[:, :c], y[:, c:]
        value = _core.tensor([float(v) for v in (fill if isinstance(fill, (tuple, list)) else [fill])], dtype=y.dtype)
        value = value.reshape(1, -1, 1, 1)
        return _core.where(mask < 0.5, value, y) if mode == "nearest" else y * mask + (1.0 - mask) * value

    return _in_floats(img, sample)


def inverse_affine(center, angle, translate, scale, shear):
    """Return [a, b, c, d, e, f]: a point (x, y) of the result is at (ax + by + c, dx + ey + f) in the picture."""
    turn, sx, sy = math.radians(angle), math.radians(shear[0]), math.radians(shear[1])
    cx, cy = center
    a = math.cos(turn - sy) / math.cos(sy)
    b = -math.cos(turn - sy) * math.tan(sx) / math.cos(sy) - math.sin(turn)
    c = math.sin(turn - sy) / math.cos(sy)
    d = -math.sin(turn - sy) * math.tan(sx) / math.cos(sy) + math.cos(turn)
    m = [x / scale for x in (d, -b, 0.0, -c, a, 0.0)]
    for row, middle in ((0, cx), (3, cy)):
        m[row + 2] += m[row] * (-cx - translate[0]) + m[row + 1] * (-cy - translate[1]) + middle
    return m


def _pixel_centers(height, width):
    """Return x [1, width] and y [height, 1] of the pixel centers, relative to the middle of the picture."""
    x = _core.linspace(-width * 0.5 + 0.5, width * 0.5 - 0.5, width).reshape(1, width)
    return x, _core.linspace(-height * 0.5 + 0.5, height * 0.5 - 0.5, height).reshape(height, 1)


def affine(img, angle, translate, scale, shear, interpolation="nearest", fill=None, center=None):
    """Return the picture in its size, rotated by an angle (degrees, clockwise), moved, scaled, and sheared."""
    img = picture(img)
    if scale <= 0.0:
        raise ValueError("Argument scale should be positive")
    shear = [shear, 0.0] if isinstance(shear, (int, float)) else list(shear) if len(shear) > 1 else [shear[0]] * 2
    h, w = img.shape[-2:]
    middle = [0.0, 0.0] if center is None else [1.0 * (c - s * 0.5) for c, s in zip(center, [w, h])]
    m = inverse_affine(middle, angle, [1.0 * t for t in translate], scale, shear)
    x, y = _pixel_centers(h, w)
    grid = _core.stack([x * (m[0] / (0.5 * w)) + y * (m[1] / (0.5 * w)) + m[2] / (0.5 * w),
                        x * (m[3] / (0.5 * h)) + y * (m[4] / (0.5 * h)) + m[5] / (0.5 * h)], -1)
    return _sampled(img, grid.unsqueeze(0), interpolation, fill)


def _solve(a, b):
    """Return x with a x = b, of lists of numbers, by elimination."""
    rows = [[*row, value] for row, value in zip(a, b)]
    n = len(rows)
    for i in range(n):
        best = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[best] = rows[best], rows[i]
        for r in range(n):
            if r != i:
                factor = rows[r][i] / rows[i][i]
                rows[r] = [p - factor * q for p, q in zip(rows[r], rows[i])]
    return [rows[i][n] / rows[i][i] for i in range(n)]


def perspective(img, startpoints, endpoints, interpolation="bilinear", fill=None):
    """Return the picture whose four corners `startpoints` [x, y] are moved to `endpoints`."""
    img = picture(img)
    a, b = [], []
    for (x, y), (u, v) in zip(endpoints, startpoints):
        a += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        b += [u, v]
    m = _solve(a, b)
    h, w = img.shape[-2:]
    x = _core.linspace(0.5, w - 0.5, w).reshape(1, w)
    y = _core.linspace(0.5, h - 0.5, h).reshape(h, 1)
    below = x * m[6] + y * m[7] + 1.0
    grid = _core.stack([(x * (m[0] / (0.5 * w)) + y * (m[1] / (0.5 * w)) + m[2] / (0.5 * w)) / below - 1.0,
                        (x * (m[3] / (0.5 * h)) + y * (m[4] / (0.5 * h)) + m[5] / (0.5 * h)) / below - 1.0], -1)
    return _sampled(img, grid.unsqueeze(0), interpolation, fill)
