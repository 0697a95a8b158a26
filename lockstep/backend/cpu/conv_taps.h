// Which taps of a convolution's kernel read which pixels, along one axis. Positions are sorted into classes by the taps
// that fall inside the image, so that kernels need not multiply by padding.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::cpu {

// One axis of a convolution: output o reads input o * stride - padding + tap * dilation.
struct ConvAxis {
  std::int64_t input, output, taps, stride, padding, dilation;

  // Distance from the first input that an output reads to the last one.
  std::int64_t span() const { return (taps - 1) * dilation; }
  // Number of inputs from the first to the last one that `outputs` adjacent outputs read.
  std::int64_t extent(std::int64_t outputs) const { return (outputs - 1) * stride + span() + 1; }
};

// Positions of one axis that read through the same taps at the same distances.
struct AxisClass {
  struct Tap {
    std::int64_t tap, offset;  // offset: from the first tap's read position to this tap's
  };
  struct Position {
    std::int64_t to, from;  // from: the first tap's read position
  };
  std::vector<Tap> taps;  // ascending; empty if everything is padding
  std::vector<Position> positions;
};

// For the forward pass: positions are outputs and read inputs.
std::vector<AxisClass> forward_classes(const ConvAxis& axis);
// For the gradient of the data: positions are inputs and read outputs.
std::vector<AxisClass> backward_classes(const ConvAxis& axis);

}  // namespace lockstep::cpu
