#include "lockstep/data/transforms/random_erasing.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms/pixels.h"

namespace lockstep {
namespace {

Tensor erased(const Tensor& image, const RandomErasingOptions& o, RandomKey key) {
  const ImageExtents e = image_extents("RandomErasing", image);
  Draws draws(key);
  if (!draws.chance(o.p)) return image;
  constexpr int kAttempts = 10;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const double area = static_cast<double>(e.height * e.width) * draws.uniform(o.min_scale, o.max_scale);
    const double ratio = draws.log_uniform(o.min_ratio, o.max_ratio);
    const std::int64_t h = rounded(std::sqrt(area * ratio)), w = rounded(std::sqrt(area / ratio));
    if (h >= e.height || w >= e.width) continue;
    const std::int64_t top = draws.below(e.height - h + 1), left = draws.below(e.width - w + 1);
    Tensor result = Tensor::host(image.shape(), image.dtype());
    with_pixel_type(image, [&]<typename T>(T) {
      T* out = result.data_ptr<T>();
      std::copy_n(image.data_ptr<const T>(), image.numel(), out);
      const T value = fill_value<T>("RandomErasing", o.value);
      for (std::int64_t c = 0; c < e.channels; ++c) {
        for (std::int64_t y = 0; y < h; ++y) std::fill_n(out + (c * e.height + top + y) * e.width + left, w, value);
      }
    });
    return result;
  }
  return image;
}

}  // namespace

RandomErasing::RandomErasing(const RandomErasingOptions& options)
    : ImageTransform(
          fmt::format("RandomErasing({}, scale=({}, {}), ratio=({}, {}), value={})", options.p, options.min_scale,
                      options.max_scale, options.min_ratio, options.max_ratio, options.value),
          [=](const Tensor& image, RandomKey key) { return erased(image, options, key); }) {
  check(options.p >= 0 && options.p <= 1, "RandomErasing: probability {}, expected 0 to 1", options.p);
  check(options.min_scale >= 0 && options.min_scale <= options.max_scale && options.max_scale <= 1,
        "RandomErasing: scale {} to {}, expected two numbers in 0 to 1, the smaller one first", options.min_scale,
        options.max_scale);
  check(options.min_ratio >= 0.001 && options.min_ratio <= options.max_ratio && options.max_ratio <= 1000,
        "RandomErasing: ratio {} to {}, expected two numbers in 0.001 to 1000, the smaller one first",
        options.min_ratio, options.max_ratio);
}

}  // namespace lockstep
