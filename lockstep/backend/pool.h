// Internal: pooling over windows and over whole images. Arrays are [N, C, H, W] of one dtype; x and y have one layout
// (any that fits both).
#pragma once

#include "lockstep/backend/kernels.h"
#include "lockstep/backend/window.h"

namespace lockstep {

namespace kernels {

// `where` (i64, y's shape and layout) gets h * W + w of each maximum, the first among equals. NaN counts as the
// largest. `where` may be absent in inference.
struct MaxPool {
  Pool2dOptions options;
  View x, y, where;
  static void views(auto& c, const auto& in, const auto& out) { in(c.x), out(c.y), out(c.where); }
};
struct MaxPoolBackward {
  Pool2dOptions options;
  View dy, where, dx;
  static void views(auto& c, const auto& in, const auto& out) { in(c.dy), in(c.where), out(c.dx); }
};

struct AvgPool {
  Pool2dOptions options;
  View x, y;
  static void views(auto& c, const auto& in, const auto& out) { in(c.x), out(c.y); }
};
struct AvgPoolBackward {
  Pool2dOptions options;
  View dy, dx;
  static void views(auto& c, const auto& in, const auto& out) { in(c.dy), out(c.dx); }
};

// y = (n mean(x^norm_type))^(1 / norm_type), where the mean is over the pixels of the window in the image, and n is the
// size of a whole window. Padding must be 0. x^norm_type keeps its sign, as in PyTorch: with an odd norm_type, roots of
// negative sums are NaN. The gradient of a sum of 0 is 0.
struct LpPool {
  Pool2dOptions options;
  double norm_type;
  View x, y;
  static void views(auto& c, const auto& in, const auto& out) { in(c.x), out(c.y); }
};
struct LpPoolBackward {
  Pool2dOptions options;
  double norm_type;
  View x, y, dy, dx;
  static void views(auto& c, const auto& in, const auto& out) { in(c.x), in(c.y), in(c.dy), out(c.dx); }
};

// y [N, C, 1, 1], plain, is the mean over H and W; x in any layout.
struct GlobalAvgPool {
  View x, y;
  static void views(auto& c, const auto& in, const auto& out) { in(c.x), out(c.y); }
};
struct GlobalAvgPoolBackward {
  View dy, dx;
  static void views(auto& c, const auto& in, const auto& out) { in(c.dy), out(c.dx); }
};

}  // namespace kernels

using PoolKernels =
    Kernels<kernels::MaxPool, kernels::MaxPoolBackward, kernels::AvgPool, kernels::AvgPoolBackward, kernels::LpPool,
            kernels::LpPoolBackward, kernels::GlobalAvgPool, kernels::GlobalAvgPoolBackward>;

}  // namespace lockstep
