// Slices and sums of images, one for each element of the window.
#include "lockstep/autograd/unfold.h"

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/ops/launch.h"

namespace lockstep {
namespace {

// The number of window positions along an axis of this extent.
std::int64_t positions(std::string_view name, std::int64_t extent, const UnfoldOptions& o, std::size_t i) {
  check(o.kernel_size[i] >= 1 && o.dilation[i] >= 1 && o.stride[i] >= 1 && o.padding[i] >= 0,
        "{}: kernel {}, dilation {}, stride {}, padding {}, expected at least 1, 1, 1, and 0", name, o.kernel_size[i],
        o.dilation[i], o.stride[i], o.padding[i]);
  ops::check_window(name, {o.kernel_size[i], o.dilation[i], o.stride[i], o.padding[i]});
  const std::int64_t reach = extent + 2 * o.padding[i] - o.dilation[i] * (o.kernel_size[i] - 1) - 1;
  check(reach >= 0, "{}: the window ({} wide) does not fit the padded image ({} wide)", name,
        o.dilation[i] * (o.kernel_size[i] - 1) + 1, extent + 2 * o.padding[i]);
  return reach / o.stride[i] + 1;
}

// Puts the elements of axis 2 + i at the places that element k of the window has in an axis of this extent.
Tensor spread(const Tensor& x, std::size_t i, std::int64_t k, std::int64_t extent, const UnfoldOptions& o) {
  const int axis = 2 + static_cast<int>(i);
  Tensor y = x;
  if (o.stride[i] > 1) {
    std::vector<std::int64_t> after(2 * static_cast<std::size_t>(x.shape().dim() - axis));
    after.back() = o.stride[i] - 1;
    y = flatten(pad(unsqueeze(x, axis + 1), after), axis, axis + 1);
  }
  const std::int64_t before = k * o.dilation[i] - o.padding[i];
  std::vector<std::int64_t> widths(2 * static_cast<std::size_t>(x.shape().dim() - axis));
  widths[widths.size() - 2] = before;
  widths[widths.size() - 1] = extent - before - y.size(axis);
  return pad(y, widths);
}

}  // namespace

Tensor unfold(const Tensor& x, const UnfoldOptions& options) {
  if (x.defined() && x.shape().dim() == 3) return squeeze(unfold(unsqueeze(x, 0), options), 0);
  check(x.defined() && x.shape().dim() == 4, "unfold: input is {}, expected 4 axes (N, C, H, W)", x);
  const std::int64_t rows = positions("unfold", x.size(2), options, 0),
                     columns = positions("unfold", x.size(3), options, 1);
  const HeightWidth &padding = options.padding, &dilation = options.dilation, &stride = options.stride;
  const Tensor padded = pad(x, {padding[1], padding[1], padding[0], padding[0]});
  std::vector<Tensor> elements;
  for (std::int64_t i = 0; i < options.kernel_size[0]; ++i) {
    const Tensor row = slice(padded, 2, i * dilation[0], i * dilation[0] + (rows - 1) * stride[0] + 1, stride[0]);
    for (std::int64_t j = 0; j < options.kernel_size[1]; ++j) {
      elements.push_back(slice(row, 3, j * dilation[1], j * dilation[1] + (columns - 1) * stride[1] + 1, stride[1]));
    }
  }
  return flatten(flatten(stack(elements, 2), 3, 4), 1, 2);
}

Tensor fold(const Tensor& x, HeightWidth output_size, const UnfoldOptions& options) {
  if (x.defined() && x.shape().dim() == 2) return squeeze(fold(unsqueeze(x, 0), output_size, options), 0);
  const std::int64_t rows = positions("fold", output_size[0], options, 0),
                     columns = positions("fold", output_size[1], options, 1),
                     window = Shape({options.kernel_size[0], options.kernel_size[1]}).numel();
  check(x.defined() && x.shape().dim() == 3 && x.size(1) % window == 0 && x.size(2) == Shape({rows, columns}).numel(),
        "fold: input is {}, expected 3 axes (N, C {}, {})", x, window, Shape({rows, columns}).numel());
  const Tensor elements = unflatten(unflatten(x, 2, {rows, columns}), 1, {-1, window});
  Tensor images;
  for (std::int64_t i = 0; i < options.kernel_size[0]; ++i) {
    Tensor row;
    for (std::int64_t j = 0; j < options.kernel_size[1]; ++j) {
      const Tensor element = select(elements, 2, i * options.kernel_size[1] + j);
      const Tensor wide = spread(element, 1, j, output_size[1], options);
      row = row.defined() ? row + wide : wide;
    }
    const Tensor part = spread(row, 0, i, output_size[0], options);
    images = images.defined() ? images + part : part;
  }
  return images;
}

Tensor pixel_shuffle(const Tensor& x, std::int64_t upscale_factor) {
  const std::int64_t r = upscale_factor;
  check(r >= 1, "pixel_shuffle: factor {}, expected at least 1", r);
  const int dims = x.shape().dim(), channels = dims - 3;
  check(x.defined() && dims >= 3 && dims <= 4 && x.size(channels) % r == 0 && x.size(channels) / r % r == 0,
        "pixel_shuffle: input is {}, expected (N, C, H, W), or (C, H, W), with a multiple of {} x {} channels", x, r,
        r);
  const Tensor split = unflatten(x, channels, {-1, r, r});  // [.., C, r, r, H, W]
  std::vector<int> order;
  for (int axis = 0; axis <= channels; ++axis) order.push_back(axis);
  for (const int axis : {3, 1, 4, 2}) order.push_back(channels + axis);
  const Tensor pixels = permute(split, order);  // [.., C, H, r, W, r]
  return owned(flatten(flatten(pixels, -2, -1), channels + 1, channels + 2), x);
}

Tensor pixel_unshuffle(const Tensor& x, std::int64_t downscale_factor) {
  const std::int64_t r = downscale_factor;
  check(r >= 1, "pixel_unshuffle: factor {}, expected at least 1", r);
  const int dims = x.shape().dim(), channels = dims - 3;
  check(x.defined() && dims >= 3 && dims <= 4 && x.size(-2) % r == 0 && x.size(-1) % r == 0,
        "pixel_unshuffle: input is {}, expected (N, C, H, W), or (C, H, W), with extents that {} divides", x, r);
  const Tensor split = unflatten(unflatten(x, -1, {-1, r}), channels + 1, {-1, r});  // [.., C, H, r, W, r]
  std::vector<int> order;
  for (int axis = 0; axis <= channels; ++axis) order.push_back(axis);
  for (const int axis : {2, 4, 1, 3}) order.push_back(channels + axis);
  return owned(flatten(permute(split, order), channels, channels + 2), x);  // [.., C, r, r, H, W]
}

}  // namespace lockstep
