// Which taps of a convolution's kernel meet which pixels, along one axis and over both. Pixels are sorted into classes by the
// taps that fall inside the image, so that no kernel ever multiplies by padding.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::cpu {

// One axis of a convolution: output o reads input o * stride - padding + tap * dilation.
struct ConvAxis {
  std::int64_t input, output, taps, stride, padding, dilation;
};

// Positions of one axis that meet the same taps at the same distances.
struct AxisClass {
  struct Tap {
    std::int64_t tap, offset;  // offset: of what it reads, from what the first tap reads
  };
  struct Position {
    std::int64_t to, from;  // from: what the first tap reads
  };
  std::vector<Tap> taps;  // ascending; none where everything is padding
  std::vector<Position> positions;
};

// For the forward pass: positions are outputs, and read inputs.
std::vector<AxisClass> forward_classes(const ConvAxis& axis);
// For the gradient of the data: positions are inputs, and read outputs.
std::vector<AxisClass> backward_classes(const ConvAxis& axis);

}  // namespace lockstep::cpu
