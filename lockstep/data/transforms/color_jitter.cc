#include "lockstep/data/transforms/color_jitter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms/pixels.h"

namespace lockstep {
namespace {

// The planes of a picture as f32 in 0 to `most`: whole numbers to 255 for u8, fractions to 1 for f32.
struct Planes {
  std::vector<float> values;
  std::size_t channels = 0, pixels = 0;
  float most = 1;
  bool whole = false;

  float* plane(std::size_t c) { return values.data() + c * pixels; }
  float settled(float x) const {
    x = std::min(std::max(x, 0.0f), most);
    return whole ? static_cast<float>(static_cast<std::int32_t>(x + 0.5f)) : x;
  }
};

float shade(float red, float green, float blue) { return 0.299f * red + 0.587f * green + 0.114f * blue; }

float shade_of(Planes& planes, std::size_t i) {
  if (planes.channels == 1) return planes.values[i];
  return planes.settled(shade(planes.plane(0)[i], planes.plane(1)[i], planes.plane(2)[i]));
}

void change_brightness(Planes& planes, float factor) {
  for (float& x : planes.values) x = planes.settled(x * factor);
}

void change_contrast(Planes& planes, float factor) {
  double sum = 0;
  for (std::size_t i = 0; i < planes.pixels; ++i) sum += static_cast<double>(shade_of(planes, i));
  const auto mean = static_cast<float>(sum / static_cast<double>(planes.pixels));
  for (float& x : planes.values) x = planes.settled(factor * x + (1 - factor) * mean);
}

void change_saturation(Planes& planes, float factor) {
  if (planes.channels == 1) return;
  for (std::size_t i = 0; i < planes.pixels; ++i) {
    const float gray = shade_of(planes, i);
    for (std::size_t c = 0; c < 3; ++c) {
      float& x = planes.plane(c)[i];
      x = planes.settled(factor * x + (1 - factor) * gray);
    }
  }
}

// Shifts the hue by way of hue, saturation, and value, as torchvision's adjust_hue of tensors.
void change_hue(Planes& planes, float shift) {
  if (planes.channels == 1) return;
  for (std::size_t i = 0; i < planes.pixels; ++i) {
    float &red = planes.plane(0)[i], &green = planes.plane(1)[i], &blue = planes.plane(2)[i];
    const float most = std::max({red, green, blue}), least = std::min({red, green, blue}), range = most - least;
    if (range <= 0) continue;  // gray
    float hue = 0;             // in sixths of a turn
    if (most == red) {
      hue = (green - blue) / range;
    } else if (most == green) {
      hue = 2 + (blue - red) / range;
    } else {
      hue = 4 + (red - green) / range;
    }
    hue += 6 * shift;
    hue -= 6 * std::floor(hue / 6);
    const float sixth = std::floor(hue), rest = hue - sixth;
    const float falling = most - range * rest, rising = most - range * (1 - rest);
    float r = 0, g = 0, b = 0;
    switch (static_cast<int>(sixth) % 6) {
      case 0: r = most, g = rising, b = least; break;
      case 1: r = falling, g = most, b = least; break;
      case 2: r = least, g = most, b = rising; break;
      case 3: r = least, g = falling, b = most; break;
      case 4: r = rising, g = least, b = most; break;
      default: r = most, g = least, b = falling; break;
    }
    red = planes.settled(r), green = planes.settled(g), blue = planes.settled(b);
  }
}

Tensor jittered(const Tensor& image, const ColorJitterOptions& o, RandomKey key) {
  const ImageExtents e = image_extents("ColorJitter", image);
  check(e.channels == 1 || e.channels == 3, "ColorJitter: the picture has {} channels, expected 1 or 3", e.channels);
  Draws draws(key);
  std::array<int, 4> order{0, 1, 2, 3};
  for (std::size_t i = order.size() - 1; i > 0; --i) {
    std::swap(order[i], order[static_cast<std::size_t>(draws.below(static_cast<std::int64_t>(i) + 1))]);
  }
  const auto factor = [&](double x) { return static_cast<float>(draws.uniform(std::max(0.0, 1 - x), 1 + x)); };
  const float brightness = factor(o.brightness), contrast = factor(o.contrast), saturation = factor(o.saturation);
  const auto hue = static_cast<float>(draws.uniform(-o.hue, o.hue));

  Tensor result = Tensor::host(image.shape(), image.dtype());
  with_pixel_type(image, [&]<typename T>(T) {
    const T* in = image.data_ptr<const T>();
    const auto count = static_cast<std::size_t>(image.numel());
    constexpr bool kWhole = std::is_same_v<T, std::uint8_t>;
    Planes planes{std::vector<float>(in, in + count), static_cast<std::size_t>(e.channels),
                  static_cast<std::size_t>(e.height * e.width), kWhole ? 255.f : 1.f, kWhole};
    for (int change : order) {
      if (change == 0 && o.brightness > 0) change_brightness(planes, brightness);
      if (change == 1 && o.contrast > 0) change_contrast(planes, contrast);
      if (change == 2 && o.saturation > 0) change_saturation(planes, saturation);
      if (change == 3 && o.hue > 0) change_hue(planes, hue);
    }
    T* out = result.data_ptr<T>();
    for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<T>(planes.values[i]);
  });
  return result;
}

}  // namespace

ColorJitter::ColorJitter(const ColorJitterOptions& options)
    : ImageTransform(fmt::format("ColorJitter(brightness={}, contrast={}, saturation={}, hue={})", options.brightness,
                                 options.contrast, options.saturation, options.hue),
                     [=](const Tensor& image, RandomKey key) { return jittered(image, options, key); }) {
  for (double x : {options.brightness, options.contrast, options.saturation}) {
    check(x >= 0 && x <= 255, "ColorJitter: a factor's range is {}, expected 0 to 255", x);
  }
  check(options.hue >= 0 && options.hue <= 0.5, "ColorJitter: hue {}, expected 0 to 0.5", options.hue);
}

}  // namespace lockstep
