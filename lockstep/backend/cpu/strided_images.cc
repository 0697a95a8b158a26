#include "lockstep/backend/cpu/strided_images.h"

#include <algorithm>

#include "lockstep/backend/cpu/f32_scratch.h"
#include "lockstep/backend/cpu/vectorize.h"

namespace lockstep::cpu {
namespace {

// Calls visitor with an element of the type.
template <typename Visitor>
void visit_type(DType dtype, const Visitor& visitor) {
  switch (dtype) {
    case DType::f32: return visitor(float{});
    case DType::bf16: return visitor(BFloat16{});
    case DType::f16: return visitor(Float16{});
    default: fail("cpu: no f32 kernels for {}", name(dtype));
  }
}

template <typename From, typename To>
void copy_typed(const StridedImages& f, const StridedImages& t, std::int64_t count) {
  const auto* const from = static_cast<const From*>(f.data);
  auto* const to = static_cast<To*>(t.data);
  vectorized([&] {
    for (std::int64_t n = 0; n < count; ++n) {
      for (std::int64_t c = 0; c < f.channels; c += kBlock) {
        const From* in = from + n * f.image + c / kBlock * f.block;
        To* out = to + n * t.image + c / kBlock * t.block;
        const std::int64_t width = std::min(kBlock, f.channels - c);
        if (width == kBlock && f.channel == 1 && t.channel == 1) {
          for (std::int64_t p = 0; p < f.pixels; ++p, in += f.pixel, out += t.pixel) {
            for (std::int64_t i = 0; i < kBlock; ++i) out[i] = static_cast<To>(static_cast<float>(in[i]));
          }
          continue;
        }
        std::int64_t p = 0;
        if (f.channel == 1 && t.channel == 1 && (f.pixel == width || f.pixel >= kBlock) &&
            (t.pixel == width || t.padded)) {
          // Whole vectors also read and write the next pixels, which are then written again. The loop below copies the
          // last pixels.
          for (; p + ceil_div(kBlock, width) <= f.pixels; ++p, in += f.pixel, out += t.pixel) {
            for (std::int64_t i = 0; i < kBlock; ++i) {
              out[i] = i < width ? static_cast<To>(static_cast<float>(in[i])) : To{};
            }
          }
        }
        for (; p < f.pixels; ++p, in += f.pixel, out += t.pixel) {
          for (std::int64_t i = 0; i < width; ++i)
            out[i * t.channel] = static_cast<To>(static_cast<float>(in[i * f.channel]));
          if (t.padded) std::fill(out + width, out + kBlock, To{});
        }
      }
    }
  });
}

}  // namespace

StridedImages StridedImages::of(const View& v) {
  const std::int64_t c = v.shape[1], p = v.shape[2] * v.shape[3];
  StridedImages s{.data = v.data, .dtype = v.dtype, .channels = c, .pixels = p, .image = c * p};
  // With one channel or one pixel, several layouts have the same order; use one that kernels can read.
  if (same_order(v.layout, Layout::blocked16, v.shape) && c % kBlock == 0) {
    s.block = p * kBlock;
    s.pixel = kBlock;
  } else if (same_order(v.layout, Layout::channels_last, v.shape)) {
    s.block = kBlock;
    s.pixel = c;
  } else {
    s.block = kBlock * p;
    s.pixel = 1;
    s.channel = p;
  }
  return s;
}

StridedImages StridedImages::blocked(float* data, std::int64_t channels, std::int64_t pixels) {
  const std::int64_t blocks = (channels + kBlock - 1) / kBlock;
  return {.data = data,
          .channels = channels,
          .pixels = pixels,
          .image = blocks * pixels * kBlock,
          .block = pixels * kBlock,
          .pixel = kBlock,
          .padded = true};
}

StridedImages StridedImages::channels_last(float* data, std::int64_t channels, std::int64_t pixels) {
  return {.data = data,
          .channels = channels,
          .pixels = pixels,
          .image = channels * pixels,
          .block = kBlock,
          .pixel = channels};
}

StridedImages StridedImages::moved(std::int64_t offset) const {
  StridedImages s = *this;
  s.data = static_cast<std::byte*>(data) + static_cast<std::size_t>(offset) * item_size(dtype);
  return s;
}

StridedImages StridedImages::pixels_from(std::int64_t begin, std::int64_t count) const {
  StridedImages s = moved(begin * pixel);
  s.pixels = count;
  return s;
}

StridedImages StridedImages::slice(std::int64_t begin, std::int64_t count) const {
  check(can_slice(begin), "cpu: channel {} does not begin a block", begin);
  StridedImages s = moved(begin / kBlock * block + begin % kBlock * channel);
  s.channels = count;
  return s;
}

void copy_images(const StridedImages& from, const StridedImages& to, std::int64_t count) {
  visit_type(from.dtype, [&](auto f) {
    visit_type(to.dtype, [&](auto t) { copy_typed<decltype(f), decltype(t)>(from, to, count); });
  });
}

}  // namespace lockstep::cpu
