// Internal: what transforms of pictures share: the extents of a picture, loops for its two types, and draws.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "lockstep/autograd/tensor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/plain_math.h"
#include "lockstep/base/random.h"
#include "lockstep/data/transforms/image_transform.h"

namespace lockstep {

struct ImageExtents {
  std::int64_t channels, height, width;
};

// Returns the extents of a picture. Throws for other tensors.
inline ImageExtents image_extents(std::string_view transform, const Tensor& image) {
  check(image.defined(), "{}: no picture", transform);
  check(image.device().is_host() && image.shape().dim() == 3 && image.numel() > 0 &&
            (image.dtype() == DType::u8 || image.dtype() == DType::f32),
        "{}: the picture is {}, expected u8 or f32 [channels, height, width] in host memory", transform, image);
  return {image.size(0), image.size(1), image.size(2)};
}

inline void check_size(std::string_view transform, ImageSize size) {
  constexpr std::int64_t kMost = 65535;
  check(size.height >= 1 && size.width >= 1 && size.height <= kMost && size.width <= kMost,
        "{}: size {} x {}, expected 1 to {} each", transform, size.height, size.width, kMost);
}

inline std::string size_text(ImageSize size) {
  return size.height == size.width ? fmt::format("{}", size.height) : fmt::format("({}, {})", size.height, size.width);
}

// Calls f with a value of the picture's element type.
template <typename F>
auto with_pixel_type(const Tensor& image, F&& f) {
  return image.dtype() == DType::u8 ? f(std::uint8_t{}) : f(float{});
}

// Returns `fill` in the type of the picture's elements.
template <typename T>
T fill_value(std::string_view transform, double fill) {
  if constexpr (std::is_same_v<T, std::uint8_t>) {
    check(fill >= 0 && fill <= 255 && fill == std::floor(fill), "{}: fill {}, expected 0 to 255 for a u8 picture",
          transform, fill);
  }
  return static_cast<T>(fill);
}

// Returns the window of the picture with this corner and size, with `fill` outside the picture.
Tensor crop_window(std::string_view transform, const Tensor& image, std::int64_t top, std::int64_t left, ImageSize size,
                   double fill);

// Random numbers under a key, one after the other. Each takes a pair of draws.
class Draws {
 public:
  explicit Draws(RandomKey key) : key_(key) {}
  double uniform(double low, double high) { return low + (high - low) * random_uniform(key_, 2 * next_++); }
  bool chance(double probability) { return uniform(0, 1) < probability; }
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(random_below(key_, next_++, static_cast<std::uint64_t>(bound)));
  }
  // Returns a number whose logarithm is uniform.
  double log_uniform(double low, double high) { return plain_exp(uniform(plain_log(low), plain_log(high))); }

 private:
  RandomKey key_;
  std::uint64_t next_ = 0;
};

inline std::int64_t rounded(double x) { return static_cast<std::int64_t>(std::floor(x + 0.5)); }

}  // namespace lockstep
