#include "lockstep/data/transforms/crop.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms/pixels.h"
#include "lockstep/data/transforms/resample.h"

namespace lockstep {

Tensor crop_window(std::string_view transform, const Tensor& image, std::int64_t top, std::int64_t left, ImageSize size,
                   double fill) {
  const ImageExtents x = image_extents(transform, image);
  Tensor result = Tensor::host({x.channels, size.height, size.width}, image.dtype());
  with_pixel_type(image, [&]<typename T>(T) {
    const T* in = image.data_ptr<const T>();
    T* out = result.data_ptr<T>();
    const T outside = fill_value<T>(transform, fill);
    const std::int64_t first = std::clamp<std::int64_t>(-left, 0, size.width);
    const std::int64_t last = std::clamp<std::int64_t>(x.width - left, first, size.width);
    for (std::int64_t c = 0; c < x.channels; ++c) {
      for (std::int64_t y = 0; y < size.height; ++y, out += size.width) {
        if (top + y < 0 || top + y >= x.height) {
          std::fill_n(out, size.width, outside);
          continue;
        }
        const T* row = in + (c * x.height + top + y) * x.width + left;
        std::fill_n(out, first, outside);
        if (last > first) std::copy(row + first, row + last, out + first);
        std::fill_n(out + last, size.width - last, outside);
      }
    }
  });
  return result;
}

namespace {

// torchvision's corner: half of the difference, rounded to even.
std::int64_t centered(std::int64_t extent, std::int64_t size) {
  const std::int64_t difference = extent - size;
  if (difference < 0) return -(-difference / 2);
  const std::int64_t half = difference / 2;
  return difference % 2 == 1 && half % 2 == 1 ? half + 1 : half;
}

ImageTransform::Function center_crop(ImageSize size) {
  check_size("CenterCrop", size);
  return [=](const Tensor& image, RandomKey) {
    const auto [channels, height, width] = image_extents("CenterCrop", image);
    if (height == size.height && width == size.width) return image;
    return crop_window("CenterCrop", image, centered(height, size.height), centered(width, size.width), size, 0);
  };
}

ImageTransform::Function random_crop(ImageSize size, const RandomCropOptions& options) {
  check_size("RandomCrop", size);
  check(options.padding >= 0 && options.padding <= 65535, "RandomCrop: padding {}, expected 0 to 65535",
        options.padding);
  return [=](const Tensor& image, RandomKey key) {
    const auto [channels, height, width] = image_extents("RandomCrop", image);
    std::int64_t down = options.padding, across = options.padding;
    if (options.pad_if_needed) {
      down += std::max<std::int64_t>(0, size.height - height - 2 * down);
      across += std::max<std::int64_t>(0, size.width - width - 2 * across);
    }
    const std::int64_t rows = height + 2 * down - size.height, columns = width + 2 * across - size.width;
    check(
        rows >= 0 && columns >= 0,
        "RandomCrop: the picture has {} x {} pixels with its padding, expected at least {} x {}; resize it before, or "
        "set pad_if_needed",
        height + 2 * down, width + 2 * across, size.height, size.width);
    Draws draws(key);
    const std::int64_t top = draws.below(rows + 1) - down, left = draws.below(columns + 1) - across;
    return crop_window("RandomCrop", image, top, left, size, options.fill);
  };
}

ImageWindow random_window(std::int64_t height, std::int64_t width, const RandomResizedCropOptions& o, RandomKey key) {
  const auto area = static_cast<double>(height * width);
  Draws draws(key);
  constexpr int kAttempts = 10;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const double target = area * draws.uniform(o.min_scale, o.max_scale);
    const double ratio = draws.log_uniform(o.min_ratio, o.max_ratio);
    const std::int64_t w = rounded(std::sqrt(target * ratio)), h = rounded(std::sqrt(target / ratio));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    const std::int64_t top = draws.below(height - h + 1), left = draws.below(width - w + 1);
    return {top, left, h, w};
  }
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  std::int64_t h = height, w = width;
  if (ratio < o.min_ratio) {
    h = std::clamp<std::int64_t>(rounded(static_cast<double>(w) / o.min_ratio), 1, height);
  } else if (ratio > o.max_ratio) {
    w = std::clamp<std::int64_t>(rounded(static_cast<double>(h) * o.max_ratio), 1, width);
  }
  return {(height - h) / 2, (width - w) / 2, h, w};
}

ImageTransform::Function random_resized_crop(ImageSize size, const RandomResizedCropOptions& options) {
  check_size("RandomResizedCrop", size);
  check_interpolation("RandomResizedCrop", options.interpolation);
  check(options.min_scale > 0 && options.min_scale <= options.max_scale && options.max_scale <= 1,
        "RandomResizedCrop: scale {} to {}, expected two numbers in (0, 1], the smaller one first", options.min_scale,
        options.max_scale);
  check(options.min_ratio >= 0.001 && options.min_ratio <= options.max_ratio && options.max_ratio <= 1000,
        "RandomResizedCrop: ratio {} to {}, expected two numbers in 0.001 to 1000, the smaller one first",
        options.min_ratio, options.max_ratio);
  return [=](const Tensor& image, RandomKey key) {
    const auto [channels, height, width] = image_extents("RandomResizedCrop", image);
    return resample("RandomResizedCrop", image, random_window(height, width, options, key), size,
                    options.interpolation);
  };
}

std::string text_of(ImageSize size, const RandomCropOptions& o) {
  std::string text = fmt::format("RandomCrop({}", size_text(size));
  if (o.padding != 0) text += fmt::format(", padding={}", o.padding);
  if (o.pad_if_needed) text += ", pad_if_needed";
  if (o.fill != 0) text += fmt::format(", fill={}", o.fill);
  return text + ")";
}

std::string text_of(ImageSize size, const RandomResizedCropOptions& o) {
  return fmt::format("RandomResizedCrop({}, scale=({}, {}), ratio=({:.4g}, {:.4g}){})", size_text(size), o.min_scale,
                     o.max_scale, o.min_ratio, o.max_ratio,
                     o.interpolation == Interpolation::nearest ? ", interpolation=nearest" : "");
}

}  // namespace

CenterCrop::CenterCrop(std::int64_t size) : CenterCrop(ImageSize{size, size}) {}
CenterCrop::CenterCrop(ImageSize size)
    : ImageTransform(fmt::format("CenterCrop({})", size_text(size)), center_crop(size)) {}

RandomCrop::RandomCrop(std::int64_t size, const RandomCropOptions& options)
    : RandomCrop(ImageSize{size, size}, options) {}
RandomCrop::RandomCrop(ImageSize size, const RandomCropOptions& options)
    : ImageTransform(text_of(size, options), random_crop(size, options)) {}

RandomResizedCrop::RandomResizedCrop(std::int64_t size, const RandomResizedCropOptions& options)
    : RandomResizedCrop(ImageSize{size, size}, options) {}
RandomResizedCrop::RandomResizedCrop(ImageSize size, const RandomResizedCropOptions& options)
    : ImageTransform(text_of(size, options), random_resized_crop(size, options)) {}

}  // namespace lockstep
