// Shared by the tests of oneDNN's kernels: tensors that own their memory, and convolutions beside loops over the
// definition.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "lockstep/backend/cpu/cpu_features.h"
#include "lockstep/backend/cpu/onednn.h"

namespace lockstep::testing {

// oneDNN computes bf16 with AVX-512, in hardware or with f32 instructions.
class Onednn : public ::testing::Test {
 protected:
  void SetUp() override {
    if (simd() != Simd::avx512) GTEST_SKIP() << "needs AVX-512";
  }
};

// A tensor that owns its elements; reading and writing go through double.
class Array {
 public:
  Array() = default;
  Array(Shape shape, DType dtype, Layout layout = Layout::plain) : bytes_(shape.numel() * item_size(dtype) + 1) {
    view_ = {bytes_.data(), dtype, layout, shape};
  }
  // Values in steps of 1/8 within [-1, 1], different for each seed: exact in bf16 and f16.
  Array(Shape shape, DType dtype, Layout layout, unsigned seed) : Array(shape, dtype, layout) {
    for (std::int64_t i = 0; i < shape.numel(); ++i) {
      seed = seed * 1664525u + 1013904223u;
      set(i, (static_cast<int>((seed >> 16) % 17) - 8) / 8.0);
    }
  }

  const View& view() const { return view_; }
  std::int64_t at(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) const {
    return offset4(view_.layout, view_.shape, n, c, h, w);
  }
  double get(std::int64_t i) const {
    return visit_dtype(
        view_.dtype, [&](auto zero) { return static_cast<double>(static_cast<float>(view_.as<decltype(zero)>()[i])); });
  }
  void set(std::int64_t i, double value) {
    visit_dtype(view_.dtype, [&](auto zero) {
      using T = decltype(zero);
      view_.as<T>()[i] = T(static_cast<float>(value));
    });
  }
  void fill(double value) {
    for (std::int64_t i = 0; i < view_.numel(); ++i) set(i, value);
  }
  bool operator==(const Array& other) const { return bytes_ == other.bytes_; }

 private:
  std::vector<std::byte> bytes_;
  View view_;
};

struct Case {
  std::int64_t n, c, h, w, o, k;
  Conv2dOptions options;
  DType dtype;
  Layout x, y;
};

// A convolution with all its operands and results.
struct Conv {
  explicit Conv(const Case& p)
      : options(p.options), x({p.n, p.c, p.h, p.w}, p.dtype, p.x, 1),
        w({p.o, p.c / p.options.groups, p.k, p.k}, DType::f32, Layout::plain, 2),
        bias({p.o}, DType::f32, Layout::plain, 3), dy({p.n, p.o, out(p.h, 0, p), out(p.w, 1, p)}, p.dtype, p.y, 4),
        y(dy.view().shape, p.dtype, p.y), dx(x.view().shape, p.dtype, p.x), dw(w.view().shape, DType::f32),
        db(bias.view().shape, DType::f32) {}

  static std::int64_t out(std::int64_t extent, int axis, const Case& p) {
    return (extent + 2 * p.options.padding[axis] - p.options.dilation[axis] * (p.k - 1) - 1) / p.options.stride[axis] +
           1;
  }

  void run(ConvKernels& kernels, KernelContext& context) {
    kernels.run(context, kernels::Conv{options, x.view(), w.view(), bias.view(), y.view()});
    kernels.run(context, kernels::ConvBackwardData{options, dy.view(), w.view(), dx.view()});
    kernels.run(context, kernels::ConvBackwardWeights{options, x.view(), dy.view(), dw.view(), db.view()});
  }

  bool same_results(const Conv& o) const { return y == o.y && dx == o.dx && dw == o.dw && db == o.db; }

  Conv2dOptions options;
  Array x, w, bias, dy, y, dx, dw, db;
};

// The three passes as loops over the definition, in double.
struct Expected {
  explicit Expected(const Conv& c)
      : y(c.y.view().numel()), dx(c.x.view().numel()), dw(c.w.view().numel()), db(c.bias.view().numel()) {
    const Shape &xs = c.x.view().shape, &ws = c.w.view().shape, &ys = c.y.view().shape;
    const std::int64_t outputs_per_group = ys[1] / c.options.groups;
    for (std::int64_t n = 0; n < ys[0]; ++n)
      for (std::int64_t o = 0; o < ys[1]; ++o)
        for (std::int64_t i = 0; i < ys[2]; ++i)
          for (std::int64_t j = 0; j < ys[3]; ++j) {
            const std::int64_t at_y = c.y.at(n, o, i, j);
            const double dy = c.dy.get(at_y);
            y[at_y] += c.bias.get(o);
            db[o] += dy;
            for (std::int64_t q = 0; q < ws[1]; ++q)
              for (std::int64_t r = 0; r < ws[2]; ++r)
                for (std::int64_t s = 0; s < ws[3]; ++s) {
                  std::int64_t h = i * c.options.stride[0] - c.options.padding[0] + r * c.options.dilation[0];
                  std::int64_t w = j * c.options.stride[1] - c.options.padding[1] + s * c.options.dilation[1];
                  if (h < 0 || h >= xs[2] || w < 0 || w >= xs[3]) continue;
                  const std::int64_t at_x = c.x.at(n, o / outputs_per_group * ws[1] + q, h, w);
                  const std::int64_t at_w = ((o * ws[1] + q) * ws[2] + r) * ws[3] + s;
                  y[at_y] += c.x.get(at_x) * c.w.get(at_w);
                  dx[at_x] += dy * c.w.get(at_w);
                  dw[at_w] += dy * c.x.get(at_x);
                }
          }
  }

  std::vector<double> y, dx, dw, db;
};

inline void expect_near(const Array& found, const std::vector<double>& expected, const char* what) {
  double scale = 1e-30, worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    scale = std::max(scale, std::abs(expected[i]));
    worst = std::max(worst, std::abs(expected[i] - found.get(i)));
    ASSERT_FALSE(std::isnan(found.get(i))) << what << "[" << i << "]";
  }
  const DType dtype = found.view().dtype;
  EXPECT_LE(worst / scale, dtype == DType::bf16 ? 1.0 / 256 : dtype == DType::f16 ? 1.0 / 2048 : 1e-5) << what;
}

inline void expect_correct(const Conv& conv) {
  Expected expected(conv);
  expect_near(conv.y, expected.y, "y");
  expect_near(conv.dx, expected.dx, "dx");
  expect_near(conv.dw, expected.dw, "dw");
  expect_near(conv.db, expected.db, "db");
}

inline constexpr auto kPlain = Layout::plain;
inline constexpr auto kLast = Layout::channels_last;
inline constexpr auto kBlocked = Layout::blocked16;

}  // namespace lockstep::testing
