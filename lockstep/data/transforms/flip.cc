#include "lockstep/data/transforms/flip.h"

#include <algorithm>
#include <cstdint>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms/pixels.h"

namespace lockstep {
namespace {

ImageTransform::Function random_flip(const char* name, double p, bool across) {
  check(p >= 0 && p <= 1, "{}: probability {}, expected 0 to 1", name, p);
  return [=](const Tensor& image, RandomKey key) {
    const auto [channels, height, width] = image_extents(name, image);
    if (!Draws(key).chance(p)) return image;
    Tensor result = Tensor::host(image.shape(), image.dtype());
    with_pixel_type(image, [&, channels = channels, height = height, width = width]<typename T>(T) {
      const T* in = image.data_ptr<const T>();
      T* out = result.data_ptr<T>();
      for (std::int64_t row = 0; row < channels * height; ++row, out += width) {
        if (across) {
          std::reverse_copy(in + row * width, in + (row + 1) * width, out);
        } else {
          const std::int64_t plane = row / height, y = row % height;
          std::copy_n(in + (plane * height + height - 1 - y) * width, width, out);
        }
      }
    });
    return result;
  };
}

}  // namespace

RandomHorizontalFlip::RandomHorizontalFlip(double p)
    : ImageTransform(fmt::format("RandomHorizontalFlip({})", p), random_flip("RandomHorizontalFlip", p, true)) {}

RandomVerticalFlip::RandomVerticalFlip(double p)
    : ImageTransform(fmt::format("RandomVerticalFlip({})", p), random_flip("RandomVerticalFlip", p, false)) {}

}  // namespace lockstep
