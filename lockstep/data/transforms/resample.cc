#include "lockstep/data/transforms/resample.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms/pixels.h"

namespace lockstep {
namespace {

// Bits after the point in the weights for u8: 255 times a weight of at most 1 fits into 31 bits.
constexpr int kWeightBits = 22;

// The taps of one output pixel: input pixels [first, first + count).
struct Taps {
  std::int64_t first, count;
};

// For each output pixel of an axis, the input pixels that it averages, and their weights, `stride` for each.
template <typename Weight>
struct AxisTaps {
  std::vector<Taps> taps;
  std::vector<Weight> weights;
  std::size_t stride = 0;
};

// Pillow's precompute_coeffs for the triangle filter, in f64. Single IEEE operations: the same on every machine.
template <typename Weight>
AxisTaps<Weight> axis_taps(std::int64_t in, std::int64_t out) {
  const double scale = static_cast<double>(in) / static_cast<double>(out), width = std::max(scale, 1.0);
  AxisTaps<Weight> axis;
  axis.stride = static_cast<std::size_t>(std::ceil(width)) * 2 + 1;
  axis.taps.reserve(static_cast<std::size_t>(out));
  axis.weights.assign(static_cast<std::size_t>(out) * axis.stride, Weight{});
  std::vector<double> exact(axis.stride);
  for (std::int64_t o = 0; o < out; ++o) {
    const double center = (static_cast<double>(o) + 0.5) * scale;
    const auto first = std::max<std::int64_t>(0, static_cast<std::int64_t>(center - width + 0.5));
    const auto last = std::min(in, static_cast<std::int64_t>(center + width + 0.5));
    const std::int64_t count = last - first;
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const double distance = std::abs((static_cast<double>(i + first) - center + 0.5) * (1.0 / width));
      exact[static_cast<std::size_t>(i)] = distance < 1 ? 1 - distance : 0;
      sum += exact[static_cast<std::size_t>(i)];
    }
    Weight* weights = axis.weights.data() + static_cast<std::size_t>(o) * axis.stride;
    for (std::int64_t i = 0; i < count; ++i) {
      const double weight = exact[static_cast<std::size_t>(i)] * (1.0 / sum);
      if constexpr (std::is_same_v<Weight, std::int32_t>) {
        weights[i] = static_cast<std::int32_t>(0.5 + weight * (1 << kWeightBits));
      } else {
        weights[i] = static_cast<Weight>(weight);
      }
    }
    axis.taps.push_back({first, count});
  }
  return axis;
}

template <typename Weight>
auto finished(Weight sum) {
  if constexpr (std::is_same_v<Weight, std::int32_t>) {
    return static_cast<std::uint8_t>(std::clamp((sum + (1 << (kWeightBits - 1))) >> kWeightBits, 0, 255));
  } else {
    return sum;
  }
}

template <typename T>
Tensor resample_bilinear(const Tensor& image, const ImageExtents& x, const ImageWindow& window, ImageSize size) {
  using Weight = std::conditional_t<std::is_same_v<T, std::uint8_t>, std::int32_t, float>;
  const T* in = image.data_ptr<const T>();
  Tensor result = Tensor::host({x.channels, size.height, size.width}, image.dtype());
  T* out = result.data_ptr<T>();
  const bool across = window.width != size.width, down = window.height != size.height;
  const auto columns = across ? axis_taps<Weight>(window.width, size.width) : AxisTaps<Weight>{};
  const auto rows = down ? axis_taps<Weight>(window.height, size.height) : AxisTaps<Weight>{};
  std::vector<T> narrow(static_cast<std::size_t>(window.height * size.width));
  std::vector<Weight> sums(static_cast<std::size_t>(size.width));
  for (std::int64_t c = 0; c < x.channels; ++c) {
    for (std::int64_t y = 0; y < window.height; ++y) {
      const T* row = in + (c * x.height + window.top + y) * x.width + window.left;
      T* to = narrow.data() + y * size.width;
      if (!across) {
        std::copy_n(row, size.width, to);
        continue;
      }
      for (std::int64_t o = 0; o < size.width; ++o) {
        const auto [first, count] = columns.taps[static_cast<std::size_t>(o)];
        const Weight* weights = columns.weights.data() + static_cast<std::size_t>(o) * columns.stride;
        Weight sum{};
        for (std::int64_t i = 0; i < count; ++i) sum += static_cast<Weight>(row[first + i]) * weights[i];
        to[o] = finished(sum);
      }
    }
    for (std::int64_t o = 0; o < size.height; ++o) {
      T* to = out + (c * size.height + o) * size.width;
      if (!down) {
        std::copy_n(narrow.data() + o * size.width, size.width, to);
        continue;
      }
      const auto [first, count] = rows.taps[static_cast<std::size_t>(o)];
      const Weight* weights = rows.weights.data() + static_cast<std::size_t>(o) * rows.stride;
      std::fill(sums.begin(), sums.end(), Weight{});
      for (std::int64_t i = 0; i < count; ++i) {
        const T* row = narrow.data() + (first + i) * size.width;
        for (std::int64_t k = 0; k < size.width; ++k)
          sums[static_cast<std::size_t>(k)] += static_cast<Weight>(row[k]) * weights[i];
      }
      for (std::int64_t k = 0; k < size.width; ++k) to[k] = finished(sums[static_cast<std::size_t>(k)]);
    }
  }
  return result;
}

template <typename T>
Tensor resample_nearest(const Tensor& image, const ImageExtents& x, const ImageWindow& window, ImageSize size) {
  const auto source = [](std::int64_t in, std::int64_t out) {
    const double scale = static_cast<double>(in) / static_cast<double>(out);
    std::vector<std::int64_t> places;
    double place = scale * 0.5;  // summed up, as Pillow does
    for (std::int64_t o = 0; o < out; ++o, place += scale) {
      places.push_back(std::min(in - 1, static_cast<std::int64_t>(place)));
    }
    return places;
  };
  const std::vector<std::int64_t> ys = source(window.height, size.height), xs = source(window.width, size.width);
  const T* in = image.data_ptr<const T>();
  Tensor result = Tensor::host({x.channels, size.height, size.width}, image.dtype());
  T* out = result.data_ptr<T>();
  for (std::int64_t c = 0; c < x.channels; ++c) {
    for (std::int64_t y : ys) {
      const T* row = in + (c * x.height + window.top + y) * x.width + window.left;
      for (std::int64_t column : xs) *out++ = row[column];
    }
  }
  return result;
}

}  // namespace

void check_interpolation(std::string_view transform, Interpolation interpolation) {
  check(interpolation == Interpolation::bilinear || interpolation == Interpolation::nearest,
        "{}: interpolation {}, expected bilinear or nearest", transform,
        interpolation == Interpolation::bicubic ? "bicubic" : "area");
}

Tensor resample(std::string_view transform, const Tensor& image, const ImageWindow& window, ImageSize size,
                Interpolation interpolation) {
  const ImageExtents x = image_extents(transform, image);
  check_size(transform, size);
  if (window.height == size.height && window.width == size.width) {
    if (window.height == x.height && window.width == x.width) return image;
    return crop_window(transform, image, window.top, window.left, size, 0);
  }
  return with_pixel_type(image, [&]<typename T>(T) {
    return interpolation == Interpolation::nearest ? resample_nearest<T>(image, x, window, size)
                                                   : resample_bilinear<T>(image, x, window, size);
  });
}

}  // namespace lockstep
