#include "lockstep/data/transforms/normalize.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms/pixels.h"

namespace lockstep {
namespace {

__extension__ using Wide = __int128;

float fraction(std::uint8_t x) { return static_cast<float>(x) / 255.0f; }

Tensor to_float(const Tensor& image) {
  image_extents("ToFloat", image);
  if (image.dtype() == DType::f32) return image;
  Tensor result = Tensor::host(image.shape());
  const auto* in = image.data_ptr<const std::uint8_t>();
  auto* out = result.data_ptr<float>();
  for (std::int64_t i = 0; i < image.numel(); ++i) out[i] = fraction(in[i]);
  return result;
}

Tensor normalized_image(const Tensor& image, const std::vector<double>& mean, const std::vector<double>& std) {
  const ImageExtents e = image_extents("Normalize", image);
  check(mean.size() == 1 || std::ssize(mean) == e.channels,
        "Normalize: {} numbers for a picture of {} channels, expected one for each", mean.size(), e.channels);
  Tensor result = Tensor::host(image.shape());
  auto* out = result.data_ptr<float>();
  const std::int64_t pixels = e.height * e.width;
  with_pixel_type(image, [&]<typename T>(T) {
    const T* in = image.data_ptr<const T>();
    for (std::int64_t c = 0; c < e.channels; ++c, in += pixels, out += pixels) {
      const std::size_t number = mean.size() == 1 ? 0 : static_cast<std::size_t>(c);
      const auto shift = static_cast<float>(mean[number]), scale = static_cast<float>(std[number]);
      if constexpr (std::is_same_v<T, std::uint8_t>) {
        std::array<float, 256> table;
        for (std::size_t v = 0; v < table.size(); ++v)
          table[v] = (fraction(static_cast<std::uint8_t>(v)) - shift) / scale;
        for (std::int64_t i = 0; i < pixels; ++i) out[i] = table[in[i]];
      } else {
        for (std::int64_t i = 0; i < pixels; ++i) out[i] = (in[i] - shift) / scale;
      }
    }
  });
  return result;
}

// Sums of the pixels of a channel, in units of 1 / scale, and of their squares, in units of 1 / scale^2.
struct PixelSums {
  Wide sum = 0, squares = 0;
};

struct ImageSums {
  std::vector<PixelSums> channels;
  std::int64_t pixels = 0;  // of a channel
  DType dtype = DType::u8;

  void add(const Tensor& image) {
    const ImageExtents e = image_extents("channel_statistics", image);
    if (channels.empty()) {
      channels.resize(static_cast<std::size_t>(e.channels));
      dtype = image.dtype();
    }
    check(std::ssize(channels) == e.channels && dtype == image.dtype(),
          "channel_statistics: a picture is {}, others have {} channels of {}, expected all alike", image,
          channels.size(), name(dtype));
    const std::int64_t count = e.height * e.width;
    for (std::int64_t c = 0; c < e.channels; ++c) {
      PixelSums& sums = channels[static_cast<std::size_t>(c)];
      if (dtype == DType::u8) {
        const auto* in = image.data_ptr<const std::uint8_t>() + c * count;
        std::uint64_t sum = 0, squares = 0;
        for (std::int64_t i = 0; i < count; ++i) sum += in[i], squares += static_cast<std::uint32_t>(in[i]) * in[i];
        sums.sum += sum, sums.squares += squares;
      } else {
        const auto* in = image.data_ptr<const float>() + c * count;
        for (std::int64_t i = 0; i < count; ++i) {
          check(in[i] >= -16 && in[i] <= 16, "channel_statistics: a pixel is {}, expected -16 to 16", in[i]);
          const auto x = rounded(static_cast<double>(in[i]) * 0x1p20);
          sums.sum += x, sums.squares += static_cast<Wide>(x) * x;
        }
      }
    }
    pixels += count;
  }

  void add(const ImageSums& other) {
    if (other.channels.empty()) return;
    if (channels.empty()) {
      *this = other;
      return;
    }
    check(channels.size() == other.channels.size() && dtype == other.dtype,
          "channel_statistics: pictures of {} and of {} channels, {} and {}, expected all alike", channels.size(),
          other.channels.size(), name(dtype), name(other.dtype));
    for (std::size_t c = 0; c < channels.size(); ++c) {
      channels[c].sum += other.channels[c].sum, channels[c].squares += other.channels[c].squares;
    }
    pixels += other.pixels;
  }
};

}  // namespace

ToFloat::ToFloat() : ImageTransform("ToFloat()", [](const Tensor& image, RandomKey) { return to_float(image); }) {}

Normalize::Normalize(std::vector<double> mean, std::vector<double> std)
    : ImageTransform(fmt::format("Normalize(({}), ({}))", fmt::join(mean, ", "), fmt::join(std, ", ")),
                     [mean, std](const Tensor& image, RandomKey) { return normalized_image(image, mean, std); }) {
  check(!mean.empty() && mean.size() == std.size(),
        "Normalize: {} means and {} deviations, expected as many, at least 1", mean.size(), std.size());
  for (std::size_t c = 0; c < std.size(); ++c) {
    check(std::isfinite(mean[c]) && std::isfinite(std[c]) && std[c] > 0,
          "Normalize: channel {} has mean {} and deviation {}, expected finite numbers and a positive deviation", c,
          mean[c], std[c]);
  }
}

ChannelStatistics channel_statistics(const Dataset& data, const ChannelStatisticsOptions& options) {
  check(data.size() > 0, "channel_statistics: no examples");
  check(options.threads >= 1 && options.threads <= 256, "channel_statistics: {} threads, expected 1 to 256",
        options.threads);
  ImageSums total;
  std::mutex mutex;
  std::atomic<std::int64_t> next = 0;
  std::int64_t first_failed = data.size();
  std::exception_ptr failure;
  const auto work = [&] {
    ImageSums sums;
    std::int64_t index = 0;
    try {
      while ((index = next++) < data.size()) {
        const Example example = data.get(index);
        check(options.part >= 0 && options.part < std::ssize(example),
              "channel_statistics: part {} of example {}, which has {}", options.part, index, example.size());
        sums.add(example[static_cast<std::size_t>(options.part)]);
      }
      const std::scoped_lock lock(mutex);
      total.add(sums);
    } catch (...) {
      next = data.size();
      const std::scoped_lock lock(mutex);
      if (index < first_failed || !failure) first_failed = index, failure = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (int i = 1; i < options.threads; ++i) helpers.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);

  ChannelStatistics result;
  const double scale = total.dtype == DType::u8 ? 255 : 0x1p20;
  const auto n = static_cast<double>(total.pixels);
  for (const PixelSums& sums : total.channels) {
    result.mean.push_back(static_cast<double>(sums.sum) / n / scale);
    const Wide spread = sums.squares * total.pixels - sums.sum * sums.sum;
    result.std.push_back(std::sqrt(static_cast<double>(spread)) / n / scale);
  }
  return result;
}

}  // namespace lockstep
