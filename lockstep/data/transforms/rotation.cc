#include "lockstep/data/transforms/rotation.h"

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "lockstep/base/error.h"
#include "lockstep/base/plain_math.h"
#include "lockstep/data/transforms/pixels.h"
#include "lockstep/data/transforms/resample.h"

namespace lockstep {
namespace {

// Interpolates the element at (x, y), where whole coordinates are the centers of pixels.
template <typename T>
T bilinear_at(const T* plane, std::int64_t height, std::int64_t width, double x, double y, T fill) {
  const double left = std::floor(x), top = std::floor(y);
  const auto column = static_cast<std::int64_t>(left), row = static_cast<std::int64_t>(top);
  const auto fx = static_cast<float>(x - left), fy = static_cast<float>(y - top);
  const auto at = [&](std::int64_t r, std::int64_t c) {
    return static_cast<float>(r < 0 || r >= height || c < 0 || c >= width ? fill : plane[r * width + c]);
  };
  const float above = (1 - fx) * at(row, column) + fx * at(row, column + 1);
  const float below = (1 - fx) * at(row + 1, column) + fx * at(row + 1, column + 1);
  const float value = (1 - fy) * above + fy * below;
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    return static_cast<T>(value + 0.5f);
  }
}

Tensor rotated(const Tensor& image, double degrees, const RandomRotationOptions& options) {
  const ImageExtents e = image_extents("RandomRotation", image);
  // A turn has 2^32 steps, for which sine and cosine have the same bits on every machine.
  const auto turn = static_cast<std::uint32_t>(rounded(degrees / 360 * 0x1p32));
  const auto [cosine, sine] = plain_unit_vector(turn);
  Tensor result = Tensor::host(image.shape(), image.dtype());
  with_pixel_type(image, [&, cosine = cosine, sine = sine]<typename T>(T) {
    const T* in = image.data_ptr<const T>();
    T* out = result.data_ptr<T>();
    const T fill = fill_value<T>("RandomRotation", options.fill);
    const double middle_x = static_cast<double>(e.width) / 2, middle_y = static_cast<double>(e.height) / 2;
    for (std::int64_t row = 0; row < e.height; ++row) {
      for (std::int64_t column = 0; column < e.width; ++column) {
        const double x = static_cast<double>(column) + 0.5 - middle_x, y = static_cast<double>(row) + 0.5 - middle_y;
        const double from_x = cosine * x - sine * y + middle_x, from_y = sine * x + cosine * y + middle_y;
        for (std::int64_t c = 0; c < e.channels; ++c) {
          const T* plane = in + c * e.height * e.width;
          T& to = out[(c * e.height + row) * e.width + column];
          if (options.interpolation == Interpolation::bilinear) {
            to = bilinear_at(plane, e.height, e.width, from_x - 0.5, from_y - 0.5, fill);
          } else {
            const auto r = static_cast<std::int64_t>(std::floor(from_y)),
                       k = static_cast<std::int64_t>(std::floor(from_x));
            to = r < 0 || r >= e.height || k < 0 || k >= e.width ? fill : plane[r * e.width + k];
          }
        }
      }
    }
  });
  return result;
}

}  // namespace

RandomRotation::RandomRotation(double degrees, const RandomRotationOptions& options)
    : RandomRotation(-degrees, degrees, options) {}

RandomRotation::RandomRotation(double min_degrees, double max_degrees, const RandomRotationOptions& options)
    : ImageTransform(fmt::format("RandomRotation(({}, {}){}{})", min_degrees, max_degrees,
                                 options.interpolation == Interpolation::bilinear ? ", interpolation=bilinear" : "",
                                 options.fill == 0 ? "" : fmt::format(", fill={}", options.fill)),
                     [=](const Tensor& image, RandomKey key) {
                       return rotated(image, Draws(key).uniform(min_degrees, max_degrees), options);
                     }) {
  check(min_degrees <= max_degrees && min_degrees >= -3600 && max_degrees <= 3600,
        "RandomRotation: {} to {} degrees, expected the smaller one first, at most ten turns", min_degrees,
        max_degrees);
  check_interpolation("RandomRotation", options.interpolation);
}

}  // namespace lockstep
