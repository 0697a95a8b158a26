// Layer norm and RMS norm.
#include "tests/backend/kernel_testing.h"

namespace lockstep::testing {
namespace {

// One element, fewer and more than the lanes of a sum, rows shared by a block of a GPU, several tasks and chunks of
// rows, and no rows.
const std::vector<Shape> kNormRows{{3, 1}, {5, 7}, {33, 16}, {200, 33}, {130, 128}, {3, 1030}, {2, 9000}, {0, 10}};
constexpr double kRowEps = 1e-5;

class RowNormTest : public KernelTest {
 protected:
  // x that is far from 0 on average.
  TestTensor shifted(const Shape& shape) {
    std::vector<double> values(static_cast<std::size_t>(shape.numel()));
    for (double& value : values) value = 3 + random_.normal();
    return TestTensor(shape, dtype(), Layout::plain, values);
  }
  // Inputs: x, weight, bias. Outputs: y, rstd, mean (not in RMS norm).
  static void forward(Backend& b, KernelContext& c, Views in, Views out) {
    b.run(c, kernels::NormRows{in[0], in[1], in[2], kRowEps, out[2], out[1], out[0]});
  }
  // Inputs: dy, x, rstd, mean (not in RMS norm), weight. Outputs: dx, dweight, dbias.
  static void backward(Backend& b, KernelContext& c, Views in, Views out) {
    b.run(c, kernels::NormRowsBackward{in[0], in[1], in[3], in[2], in[4], out[0], out[1], out[2]});
  }
};

TEST_P(RowNormTest, MatchesTheReference) {
  for (const Shape& shape : kNormRows) {
    for (const bool centered : {true, false}) {
      for (const bool affine : {true, false}) {
        SCOPED_TRACE(shape.str() + (centered ? " centered" : "") + (affine ? " affine" : ""));
        const Shape row{shape[1]}, rows{shape[0]};
        const TestTensor x = centered ? shifted(shape) : input(shape);
        const TestTensor w = affine ? master(row) : TestTensor(), bias = affine ? master(row) : TestTensor();
        const Tensors outputs{output(shape), master_output(rows), centered ? master_output(rows) : TestTensor()};
        expect_matches_reference({x, w, bias}, outputs, forward);
        const Tensors saved = run({x, w, bias}, outputs, forward);
        const Tensors in{input(shape), x, saved[1], saved[2], w};
        expect_matches_reference(in, {output(shape), master_output(row), master_output(row)}, backward);
        // Each result alone is the same as together with the others.
        const Tensors all = run(in, {output(shape), master_output(row), master_output(row)}, backward);
        for (std::size_t only = 0; only < 3; ++only) {
          Tensors some{output(shape), master_output(row), master_output(row)};
          for (std::size_t i = 0; i < 3; ++i) {
            if (i != only) some[i] = {};
          }
          EXPECT_TRUE(run(in, some, backward)[only].same_bits(all[only])) << only;
        }
      }
    }
  }
}

// Without their mean the rows would lose all digits of f32.
TEST_P(RowNormTest, VarianceSurvivesALargeMean) {
  if (dtype() != DType::f32) GTEST_SKIP() << "the values are for f32";
  std::vector<double> values;
  for (int i = 0; i < 200; ++i) values.push_back(1e4 + i % 2);
  const Tensors found = run({TestTensor({1, 200}, DType::f32, Layout::plain, values), {}, {}},
                            {output({1, 200}), master_output({1}), master_output({1})}, forward);
  EXPECT_NEAR(found[1].values()[0], 2, 1e-3);
  EXPECT_NEAR(found[0].values()[0], -1, 1e-3);
  EXPECT_NEAR(found[0].values()[1], 1, 1e-3);
}

// A row's results do not depend on the rows around it.
TEST_P(RowNormTest, RowsAreIndependent) {
  const Shape shape{70, 24}, row{24};
  const TestTensor x = shifted(shape), dy = input(shape), w = master(row), bias = master(row);
  const auto passes = [&](const TestTensor& x, const TestTensor& dy) {
    const Shape rows{x.shape()[0]};
    Tensors found = run({x, w, bias}, {output(x.shape()), master_output(rows), master_output(rows)}, forward);
    found.push_back(run({dy, x, found[1], found[2], w}, {output(x.shape()), {}, {}}, backward)[0]);
    return found;
  };
  const Tensors all = passes(x, dy);
  for (const std::int64_t at : {0, 1, 69}) {
    const auto part = [&](const TestTensor& t) {
      const std::vector<double> values = t.values();
      const std::int64_t k = t.shape().numel() / shape[0];
      return std::vector<double>(values.begin() + at * k, values.begin() + (at + 1) * k);
    };
    const Tensors one = passes(TestTensor({1, 24}, dtype(), Layout::plain, part(x)),
                               TestTensor({1, 24}, dtype(), Layout::plain, part(dy)));
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(one[i].values(), part(all[i])) << at << " " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, RowNormTest, ::testing::ValuesIn(kernel_cases()), kernel_case_name);

}  // namespace
}  // namespace lockstep::testing
