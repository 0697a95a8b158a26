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

// The common part: pads the last one or two axes, behind the channels. An input may lack the batch.
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

// For sequences [N, C, L]: one width, or {left, right}.
class PaddingLayer1d : public PaddingLayer {
 protected:
  PaddingLayer1d(PadMode mode, std::array<std::int64_t, 2> widths, double value = 0)
      : PaddingLayer(mode, {widths.begin(), widths.end()}, value) {}
};

// For images [N, C, H, W]: one width, or {left, right, top, bottom}.
class PaddingLayer2d : public PaddingLayer {
 protected:
  PaddingLayer2d(PadMode mode, std::array<std::int64_t, 4> widths, double value = 0)
      : PaddingLayer(mode, {widths.begin(), widths.end()}, value) {}
};

class ZeroPad1d : public PaddingLayer1d {
 public:
  explicit ZeroPad1d(std::int64_t width) : ZeroPad1d({width, width}) {}
  explicit ZeroPad1d(std::array<std::int64_t, 2> widths) : PaddingLayer1d(PadMode::constant, widths) {}
};

class ZeroPad2d : public PaddingLayer2d {
 public:
  explicit ZeroPad2d(std::int64_t width) : ZeroPad2d({width, width, width, width}) {}
  explicit ZeroPad2d(std::array<std::int64_t, 4> widths) : PaddingLayer2d(PadMode::constant, widths) {}
};

class ReflectionPad1d : public PaddingLayer1d {
 public:
  explicit ReflectionPad1d(std::int64_t width) : ReflectionPad1d({width, width}) {}
  explicit ReflectionPad1d(std::array<std::int64_t, 2> widths) : PaddingLayer1d(PadMode::reflect, widths) {}
};

class ReflectionPad2d : public PaddingLayer2d {
 public:
  explicit ReflectionPad2d(std::int64_t width) : ReflectionPad2d({width, width, width, width}) {}
  explicit ReflectionPad2d(std::array<std::int64_t, 4> widths) : PaddingLayer2d(PadMode::reflect, widths) {}
};

class ReplicationPad1d : public PaddingLayer1d {
 public:
  explicit ReplicationPad1d(std::int64_t width) : ReplicationPad1d({width, width}) {}
  explicit ReplicationPad1d(std::array<std::int64_t, 2> widths) : PaddingLayer1d(PadMode::replicate, widths) {}
};

class ReplicationPad2d : public PaddingLayer2d {
 public:
  explicit ReplicationPad2d(std::int64_t width) : ReplicationPad2d({width, width, width, width}) {}
  explicit ReplicationPad2d(std::array<std::int64_t, 4> widths) : PaddingLayer2d(PadMode::replicate, widths) {}
};

class CircularPad1d : public PaddingLayer1d {
 public:
  explicit CircularPad1d(std::int64_t width) : CircularPad1d({width, width}) {}
  explicit CircularPad1d(std::array<std::int64_t, 2> widths) : PaddingLayer1d(PadMode::circular, widths) {}
};

class CircularPad2d : public PaddingLayer2d {
 public:
  explicit CircularPad2d(std::int64_t width) : CircularPad2d({width, width, width, width}) {}
  explicit CircularPad2d(std::array<std::int64_t, 4> widths) : PaddingLayer2d(PadMode::circular, widths) {}
};

class ConstantPad1d : public PaddingLayer1d {
 public:
  ConstantPad1d(std::int64_t width, double value) : ConstantPad1d({width, width}, value) {}
  ConstantPad1d(std::array<std::int64_t, 2> widths, double value) : PaddingLayer1d(PadMode::constant, widths, value) {}

 protected:
  std::string extra_repr() const override;
};

class ConstantPad2d : public PaddingLayer2d {
 public:
  ConstantPad2d(std::int64_t width, double value) : ConstantPad2d({width, width, width, width}, value) {}
  ConstantPad2d(std::array<std::int64_t, 4> widths, double value) : PaddingLayer2d(PadMode::constant, widths, value) {}

 protected:
  std::string extra_repr() const override;
};

}  // namespace lockstep
