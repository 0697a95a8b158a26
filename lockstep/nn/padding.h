// Padding of images and sequences: see pad().
//
//   net.append(ReflectionPad2d(1)).append(Conv2d({.out_channels = 64, .kernel_size = 3}));
//   net.append(ZeroPad2d({1, 0, 2, 0}));  // left, right, top, bottom
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

// The base of the padding layers: pads the one or two axes after the channels. An input may lack the batch.
class PaddingLayer : public Module {
 public:
  Tensor forward(const Tensor& x) override;

 protected:
  PaddingLayer(PadMode mode, std::vector<std::int64_t> widths, double value = 0);
  std::string extra_repr() const override;

  PadMode mode_;
  std::vector<std::int64_t> widths_;
  double value_;
};

// Padding in one mode: one width for all sides, or {left, right} for sequences [N, C, L] and {left, right, top, bottom}
// for images [N, C, H, W].
template <PadMode mode, std::size_t sides>
class PaddingBy : public PaddingLayer {
 public:
  explicit PaddingBy(std::int64_t width) : PaddingLayer(mode, std::vector(sides, width)) {}
  explicit PaddingBy(std::array<std::int64_t, sides> widths) : PaddingLayer(mode, {widths.begin(), widths.end()}) {}
};

class ZeroPad1d : public PaddingBy<PadMode::constant, 2> {
 public:
  using PaddingBy::PaddingBy;
};

class ZeroPad2d : public PaddingBy<PadMode::constant, 4> {
 public:
  using PaddingBy::PaddingBy;
};

class ReflectionPad1d : public PaddingBy<PadMode::reflect, 2> {
 public:
  using PaddingBy::PaddingBy;
};

class ReflectionPad2d : public PaddingBy<PadMode::reflect, 4> {
 public:
  using PaddingBy::PaddingBy;
};

class ReplicationPad1d : public PaddingBy<PadMode::replicate, 2> {
 public:
  using PaddingBy::PaddingBy;
};

class ReplicationPad2d : public PaddingBy<PadMode::replicate, 4> {
 public:
  using PaddingBy::PaddingBy;
};

class CircularPad1d : public PaddingBy<PadMode::circular, 2> {
 public:
  using PaddingBy::PaddingBy;
};

class CircularPad2d : public PaddingBy<PadMode::circular, 4> {
 public:
  using PaddingBy::PaddingBy;
};

class ConstantPad1d : public PaddingLayer {
 public:
  ConstantPad1d(std::int64_t width, double value) : ConstantPad1d({width, width}, value) {}
  ConstantPad1d(std::array<std::int64_t, 2> widths, double value)
      : PaddingLayer(PadMode::constant, {widths.begin(), widths.end()}, value) {}

 protected:
  std::string extra_repr() const override;
};

class ConstantPad2d : public PaddingLayer {
 public:
  ConstantPad2d(std::int64_t width, double value) : ConstantPad2d({width, width, width, width}, value) {}
  ConstantPad2d(std::array<std::int64_t, 4> widths, double value)
      : PaddingLayer(PadMode::constant, {widths.begin(), widths.end()}, value) {}

 protected:
  std::string extra_repr() const override;
};

}  // namespace lockstep
