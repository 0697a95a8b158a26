#include "lockstep/backend/cpu/conv_taps.h"

#include <algorithm>

namespace lockstep::cpu {
namespace {

// reads(position, tap) returns the position that is read, or a negative number for padding.
template <typename Reads>
std::vector<AxisClass> classes(std::int64_t positions, std::int64_t taps, const Reads& reads) {
  std::vector<AxisClass> all;
  std::vector<AxisClass::Tap> met;
  for (std::int64_t to = 0; to < positions; ++to) {
    met.clear();
    std::int64_t first = 0;
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      const std::int64_t from = reads(to, tap);
      if (from < 0) continue;
      if (met.empty()) first = from;
      met.push_back({tap, from - first});
    }
    auto same = std::ranges::find_if(all, [&](const AxisClass& c) {
      return std::ranges::equal(c.taps, met,
                                [](const auto& a, const auto& b) { return a.tap == b.tap && a.offset == b.offset; });
    });
    if (same == all.end()) same = all.insert(all.end(), AxisClass{met, {}});
    same->positions.push_back({to, first});
  }
  return all;
}

}  // namespace

std::vector<AxisClass> forward_classes(const ConvAxis& a) {
  return classes(a.output, a.taps, [&](std::int64_t output, std::int64_t tap) {
    const std::int64_t input = output * a.stride - a.padding + tap * a.dilation;
    return input < a.input ? input : -1;
  });
}

std::vector<AxisClass> backward_classes(const ConvAxis& a) {
  return classes(a.input, a.taps, [&](std::int64_t input, std::int64_t tap) {
    const std::int64_t reach = input + a.padding - tap * a.dilation;
    if (reach < 0 || reach % a.stride != 0) return std::int64_t{-1};
    return reach / a.stride < a.output ? reach / a.stride : -1;
  });
}

}  // namespace lockstep::cpu
