#include <cmath>
#include <limits>

#include "tests/backend/kernel_testing.h"

namespace lockstep::testing {
namespace {

struct PoolCase {
  Shape x;
  Pool2dOptions options;

  Shape y() const { return {x[0], x[1], extent(0), extent(1)}; }
  std::int64_t extent(int axis) const {
    const std::int64_t reach = x[2 + axis] + 2 * options.padding[axis] - options.kernel_size[axis];
    const std::int64_t outputs = reach / options.stride[axis] + 1;
    return outputs + (options.ceil_mode && reach % options.stride[axis] != 0 ? 1 : 0);
  }
};

const std::vector<PoolCase> kCases{
    {{2, 16, 8, 8}, {}},
    {{3, 5, 7, 9}, {}},  // the last row and column fall off
    {{2, 32, 9, 7}, {.kernel_size = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}},
    {{2, 17, 6, 6}, {.kernel_size = {3, 3}, .stride = {1, 1}, .padding = {1, 1}}},
    {{1, 16, 5, 8}, {.kernel_size = {2, 3}, .stride = {1, 2}, .padding = {1, 0}}},
    {{2, 3, 5, 5}, {.kernel_size = {1, 1}, .stride = {2, 2}}},
    {{1, 1, 1, 1}, {.kernel_size = {3, 3}, .stride = {1, 1}, .padding = {1, 1}}},
    {{2, 16, 4, 4}, {.kernel_size = {4, 4}, .stride = {4, 4}}},
    {{2, 16, 8, 7}, {.kernel_size = 3, .stride = 2, .ceil_mode = true}},
    {{1, 3, 6, 9}, {.kernel_size = {3, 4}, .stride = {2, 3}, .padding = 1, .ceil_mode = true}},
    {{0, 16, 4, 4}, {}}};

class PoolTest : public KernelTest {
 protected:
  // Calls body(case, layout) for all cases in all layouts.
  template <typename Body>
  void for_each_case(const Body& body) {
    for (const PoolCase& c : kCases) {
      for (Layout layout : layouts_that_fit(c.x)) {
        SCOPED_TRACE(c.x.str() + " " + std::string(name(layout)));
        body(c, layout);
      }
    }
  }
};

TEST_P(PoolTest, MaxForward) {
  for_each_case([&](const PoolCase& c, Layout layout) {
    for (bool where : {true, false}) {
      TestTensor place = where ? TestTensor(c.y(), DType::i64, layout) : TestTensor();
      expect_same_bits_as_reference({input(c.x, layout)}, {output(c.y(), layout), place},
                                    [&](Backend& b, KernelContext& context, Views in, Views out) {
                                      b.run(context, kernels::MaxPool{c.options, in[0], out[0], out[1]});
                                    });
    }
  });
}

TEST_P(PoolTest, MaxTakesTheFirstAmongEqualsAndNan) {
  double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (Layout layout : {Layout::plain, Layout::channels_last}) {
    TestTensor x = TestTensor({1, 1, 2, 8}, dtype(),
                              {1, 5, 0, nan, -inf, -inf, 2, 3,  //
                               5, 5, 9, nan, -inf, -inf, 3, 3})
                       .to(dtype(), layout);
    Tensors out = run({x}, {output({1, 1, 1, 4}, layout), TestTensor({1, 1, 1, 4}, DType::i64, layout)},
                      [](Backend& b, KernelContext& c, Views in, Views out) {
                        b.run(c, kernels::MaxPool{{}, in[0], out[0], out[1]});
                      });
    std::vector<double> y = out[0].values();
    EXPECT_EQ(y[0], 5);
    EXPECT_TRUE(std::isnan(y[1]));
    EXPECT_EQ(y[2], -inf);
    EXPECT_EQ(y[3], 3);
    EXPECT_EQ(out[1].values(), (std::vector<double>{1, 3, 4, 7}));
  }
}

TEST_P(PoolTest, MaxBackward) {
  for_each_case([&](const PoolCase& c, Layout layout) {
    Tensors pooled = run({input(c.x, layout)}, {output(c.y(), layout), TestTensor(c.y(), DType::i64, layout)},
                         [&](Backend& b, KernelContext& context, Views in, Views out) {
                           b.run(context, kernels::MaxPool{c.options, in[0], out[0], out[1]});
                         });
    expect_matches_reference({input(c.y(), layout), pooled[1]}, {output(c.x, layout)},
                             [&](Backend& b, KernelContext& context, Views in, Views out) {
                               b.run(context, kernels::MaxPoolBackward{c.options, in[0], in[1], out[0]});
                             });
  });
}

TEST_P(PoolTest, Average) {
  for_each_case([&](const PoolCase& c, Layout layout) {
    for (bool count_include_pad : {true, false}) {
      Pool2dOptions options = c.options;
      options.count_include_pad = count_include_pad;
      expect_matches_reference({input(c.x, layout)}, {output(c.y(), layout)},
                               [&](Backend& b, KernelContext& context, Views in, Views out) {
                                 b.run(context, kernels::AvgPool{options, in[0], out[0]});
                               });
      expect_matches_reference({input(c.y(), layout)}, {output(c.x, layout)},
                               [&](Backend& b, KernelContext& context, Views in, Views out) {
                                 b.run(context, kernels::AvgPoolBackward{options, in[0], out[0]});
                               });
    }
  });
}

TEST_P(PoolTest, Norms) {
  for_each_case([&](const PoolCase& c, Layout layout) {
    if (c.options.padding != HeightWidth(0)) return;
    for (double norm_type : {1.0, 2.0, 2.5}) {
      // Far enough from 0 for the slopes of roots.
      const TestTensor x = random_.tensor_between(0.25, 2, c.x, dtype(), layout);
      const Kernel forward = [&](Backend& b, KernelContext& context, Views in, Views out) {
        b.run(context, kernels::LpPool{c.options, norm_type, in[0], out[0]});
      };
      expect_matches_reference({x}, {output(c.y(), layout)}, forward);
      const Tensors y = run({x}, {output(c.y(), layout)}, forward);
      expect_matches_reference(
          {x, y[0], input(c.y(), layout)}, {output(c.x, layout)},
          [&](Backend& b, KernelContext& context, Views in, Views out) {
            b.run(context, kernels::LpPoolBackward{c.options, norm_type, in[0], in[1], in[2], out[0]});
          });
    }
  });
}

TEST_P(PoolTest, ANormOfZerosHasNoSlope) {
  const TestTensor zeros({1, 1, 2, 2}, dtype(), {0, 0, 0, 0}), norm({1, 1, 1, 1}, dtype(), {0});
  const Tensors dx =
      run({zeros, norm, norm}, {output({1, 1, 2, 2})}, [](Backend& b, KernelContext& context, Views in, Views out) {
        b.run(context, kernels::LpPoolBackward{{}, 2, in[0], in[1], in[2], out[0]});
      });
  EXPECT_EQ(dx[0].values(), std::vector<double>(4, 0));
}

TEST_P(PoolTest, GlobalAverage) {
  for (const Shape& shape :
       std::vector<Shape>{{2, 16, 7, 7}, {3, 5, 4, 9}, {2, 32, 1, 1}, {1, 1, 3, 3}, {0, 16, 2, 2}}) {
    for (Layout layout : layouts_that_fit(shape)) {
      SCOPED_TRACE(shape.str() + " " + std::string(name(layout)));
      Shape pooled{shape[0], shape[1], 1, 1};
      expect_matches_reference({input(shape, layout)}, {output(pooled)},
                               [](Backend& b, KernelContext& context, Views in, Views out) {
                                 b.run(context, kernels::GlobalAvgPool{in[0], out[0]});
                               });
      expect_matches_reference({input(pooled)}, {output(shape, layout)},
                               [](Backend& b, KernelContext& context, Views in, Views out) {
                                 b.run(context, kernels::GlobalAvgPoolBackward{in[0], out[0]});
                               });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, PoolTest, ::testing::ValuesIn(kernel_cases()), kernel_case_name);

}  // namespace
}  // namespace lockstep::testing
