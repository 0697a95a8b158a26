#include <algorithm>
#include <limits>

#include "tests/backend/kernel_testing.h"

namespace lockstep::testing {
namespace {

class ReduceTest : public KernelTest {};

void sum_to(Backend& b, KernelContext& c, Views in, Views out) { b.run(c, kernels::SumTo{in[0], out[0]}); }
void max_to(Backend& b, KernelContext& c, Views in, Views out) { b.run(c, kernels::MaxTo{in[0], out[0]}); }
void tree_sum(Backend& b, KernelContext& c, Views in, Views out) { b.run(c, kernels::TreeSum{in, out[0]}); }
void squared_norm(Backend& b, KernelContext& c, Views in, Views out) { b.run(c, kernels::SquaredNorm{in, {}, out[0]}); }

const std::vector<std::pair<Shape, Shape>> kReductions{{{50, 37}, {37}},
                                                       {{50, 37}, {50, 1}},
                                                       {{50, 37}, {1, 1}},
                                                       {{50, 37}, {}},
                                                       {{50, 37}, {50, 37}},
                                                       {{3, 16, 5, 7}, {16, 1, 1}},
                                                       {{3, 16, 5, 7}, {1, 16, 1, 7}},
                                                       {{2, 3, 4, 5}, {2, 1, 4, 1}},
                                                       {{20011}, {1}},
                                                       {{5000, 37}, {37}},
                                                       {{6, 20000}, {6, 1}},
                                                       {{30, 3, 700}, {3, 1}},
                                                       {{700, 3}, {700, 1}},
                                                       {{0, 5}, {5}},
                                                       {{}, {}}};

TEST_P(ReduceTest, SumsBack) {
  for (const auto& [from, to] : kReductions) {
    SCOPED_TRACE(from.str() + " to " + to.str());
    // Positive, so that no sum is small beside what was added.
    expect_matches_reference({random_.tensor_between(0, 1, from, dtype())}, {output(to)}, sum_to);
  }
}

TEST_P(ReduceTest, FindsTheLargest) {
  for (const auto& [from, to] : kReductions) {
    SCOPED_TRACE(from.str() + " to " + to.str());
    expect_same_bits_as_reference({input(from)}, {output(to)}, max_to);
  }
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  TestTensor x({4, 3}, dtype(), {-3, -1, -2, 0, nan, inf, -inf, -inf, -inf, nan, 1, 2});
  const std::vector<double> largest = run({x}, {output({4, 1})}, max_to)[0].values();
  EXPECT_EQ(largest[0], -1);
  EXPECT_NE(largest[1], largest[1]);
  EXPECT_EQ(largest[2], -inf);
  EXPECT_NE(largest[3], largest[3]);
}

// Beyond 2^53, which f64 would round, and modulo 2^64.
TEST_P(ReduceTest, IntegersAreExact) {
  const std::int64_t large = std::int64_t{1} << 62;
  const auto integers = [&](const Shape& shape) {
    TestTensor x = random_.integers(-40, 40, shape);
    for (std::int64_t i = 0; i < shape.numel(); ++i) x.view().as<std::int64_t>()[i] += i % 3 == 0 ? -large : large;
    return x;
  };
  for (const auto& [from, to] : kReductions) {
    SCOPED_TRACE(from.str() + " to " + to.str());
    expect_same_bits_as_reference({integers(from)}, {TestTensor(to, DType::i64)}, sum_to);
    expect_same_bits_as_reference({integers(from)}, {TestTensor(to, DType::i64)}, max_to);
  }
  for (const Shape& shape : std::vector<Shape>{{3, 40, 5}, {2, 7, 130}, {2, 0, 3}}) {
    for (bool reverse : {false, true}) {
      expect_same_bits_as_reference({integers(shape)}, {TestTensor(shape, DType::i64)},
                                    [reverse](Backend& b, KernelContext& c, Views in, Views out) {
                                      b.run(c, kernels::Cumsum{reverse, in[0], out[0]});
                                    });
    }
  }
  for (const Shape& shape : std::vector<Shape>{{20, 10}, {7, 1}, {3, 1000}}) {
    expect_same_bits_as_reference({integers(shape)}, {TestTensor({shape[0]}, DType::i64)},
                                  [](Backend& b, KernelContext& c, Views in, Views out) {
                                    b.run(c, kernels::Argmax{in[0], out[0]});
                                  });
    for (bool descending : {false, true}) {
      expect_same_bits_as_reference({integers(shape)}, {TestTensor(shape, DType::i64)},
                                    [descending](Backend& b, KernelContext& c, Views in, Views out) {
                                      b.run(c, kernels::Argsort{descending, in[0], out[0]});
                                    });
    }
  }
  TestTensor x({3}, DType::i64);
  const std::int64_t values[] = {large + 1, large, 3 - large - large};
  std::copy_n(values, 3, x.view().as<std::int64_t>());
  EXPECT_EQ(*run({x}, {TestTensor({1}, DType::i64)}, sum_to)[0].view().as<std::int64_t>(), 4);
  EXPECT_EQ(*run({x}, {TestTensor({1}, DType::i64)}, max_to)[0].view().as<std::int64_t>(), large + 1);
}

TEST_P(ReduceTest, SumsUpSoFar) {
  for (const Shape& shape :
       std::vector<Shape>{{3, 40, 5}, {1, 1000, 1}, {2, 7, 130}, {4, 1, 3}, {2, 0, 3}, {0, 4, 2}}) {
    for (bool reverse : {false, true}) {
      SCOPED_TRACE(shape.str());
      Kernel kernel = [reverse](Backend& b, KernelContext& c, Views in, Views out) {
        b.run(c, kernels::Cumsum{reverse, in[0], out[0]});
      };
      const TestTensor x = random_.tensor_between(0, 1, shape, dtype());
      expect_matches_reference({x}, {output(shape)}, kernel);
      expect_in_place({x}, {output(shape)}, 0, 0, kernel);
    }
  }
}

TEST_P(ReduceTest, SumsDoNotDependOnThreads) {
  KernelContext other{3 - context_.threads};
  auto with_other = [&](const Kernel& kernel) -> Kernel {
    return [&other, kernel](Backend& b, KernelContext&, Views in, Views out) { kernel(b, other, in, out); };
  };
  TestTensor x = input({70, 311});
  for (const Shape& shape : std::vector<Shape>{{311}, {70, 1}, {}}) {
    EXPECT_TRUE(run({x}, {output(shape)}, sum_to)[0].same_bits(run({x}, {output(shape)}, with_other(sum_to))[0]));
  }
  Tensors tensors{master({70, 311}), master({5}), master({1000, 7})};
  Tensors out{TestTensor({1}, DType::f64)};
  EXPECT_TRUE(run(tensors, out, squared_norm)[0].same_bits(run(tensors, out, with_other(squared_norm))[0]));
}

TEST_P(ReduceTest, Argmax) {
  auto argmax = [](Backend& b, KernelContext& c, Views in, Views out) { b.run(c, kernels::Argmax{in[0], out[0]}); };
  for (const Shape& shape : std::vector<Shape>{{20, 10}, {7, 1}, {3, 1000}, {0, 10}}) {
    expect_same_bits_as_reference({input(shape)}, {TestTensor({shape[0]}, DType::i64)}, argmax);
  }
  double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  TestTensor x({5, 3}, dtype(), {1, 2, 2, 3, 3, 3, 0, nan, inf, -inf, -inf, -inf, -1, -3, -1});
  EXPECT_EQ(run({x}, {TestTensor({5}, DType::i64)}, argmax)[0].values(), (std::vector<double>{1, 0, 1, 0, 0}));
}

TEST_P(ReduceTest, Argsort) {
  double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (const bool descending : {false, true}) {
    auto argsort = [=](Backend& b, KernelContext& c, Views in, Views out) {
      b.run(c, kernels::Argsort{descending, in[0], out[0]});
    };
    for (const Shape& shape : std::vector<Shape>{{20, 10}, {7, 1}, {3, 1000}, {0, 10}, {4, 0}}) {
      SCOPED_TRACE(shape.str());
      // Some are equal.
      const TestTensor x = random_.integers(0, 30, shape).to(dtype(), Layout::plain);
      expect_same_bits_as_reference({x}, {TestTensor(shape, DType::i64)}, argsort);
    }
    TestTensor x({1, 6}, dtype(), {1, nan, -inf, 1, inf, nan});
    EXPECT_EQ(run({x}, {TestTensor({1, 6}, DType::i64)}, argsort)[0].values(),
              descending ? (std::vector<double>{1, 5, 4, 0, 3, 2}) : (std::vector<double>{2, 0, 3, 4, 1, 5}));
  }
}

TEST_P(ReduceTest, TreeSumAddsInTheOrderOfTheTree) {
  for (int leaves : {1, 2, 3, 4, 5, 6, 7, 8, 9, 70, 150}) {
    for (const Shape& shape : std::vector<Shape>{{1}, {37}, {20000}}) {
      if (leaves > 9 && shape.numel() > 100) continue;
      Tensors inputs;
      for (int i = 0; i < leaves; ++i) inputs.push_back(master(shape));
      SCOPED_TRACE(::testing::Message() << leaves << " leaves of shape " << shape.str());
      expect_same_bits_as_reference(inputs, {master_output(shape)}, tree_sum);
      expect_in_place(inputs, {master_output(shape)}, leaves - 1, 0, tree_sum);
      expect_in_place(inputs, {master_output(shape)}, 0, 0, tree_sum);
    }
  }
}

TEST_P(ReduceTest, TreeSumPassesSiblingsOfMissingLeaves) {
  for (int present = 1; present < 32; ++present) {
    Tensors inputs;
    for (int i = 0; i < 5; ++i) inputs.push_back(present >> i & 1 ? master({67}) : TestTensor());
    SCOPED_TRACE(present);
    expect_same_bits_as_reference(inputs, {master_output({67})}, tree_sum);
  }
  // Adding +0 would lose the sign.
  TestTensor zero({1}, master_dtype(), {-0.0});
  EXPECT_TRUE(run({TestTensor(), zero, TestTensor()}, {master_output({1})}, tree_sum)[0].same_bits(zero));
}

TEST_P(ReduceTest, SubtreesSummedFirstGiveTheSameBits) {
  Tensors leaves;
  for (int i = 0; i < 7; ++i) leaves.push_back(master({1000}));
  TestTensor all = run(leaves, {master_output({1000})}, tree_sum)[0];
  TestTensor a = run({leaves.begin(), leaves.begin() + 4}, {master_output({1000})}, tree_sum)[0];
  TestTensor b = run({leaves.begin() + 4, leaves.end()}, {master_output({1000})}, tree_sum)[0];
  EXPECT_TRUE(run({a, b}, {master_output({1000})}, tree_sum)[0].same_bits(all));
}

TEST_P(ReduceTest, SquaredNorm) {
  TestTensor out({1}, DType::f64);
  expect_matches_reference({master({100, 77}), master({1}), master({0}), master({5000})}, {out}, squared_norm);
  expect_matches_reference({}, {out}, squared_norm);
  // Squares beyond the range of f32.
  TestTensor large({2}, master_dtype(), {3e30, 4e30});
  EXPECT_NEAR(run({large}, {out}, squared_norm)[0].values()[0] / 25e60, 1, 1e-6);
}

TEST_P(ReduceTest, SquaredNormLeavesOutWhatIsNotPresent) {
  Tensors inputs;
  double expected = 0;
  for (int i = 0; i < 150; ++i) {
    inputs.push_back(TestTensor({1}, master_dtype(), {static_cast<double>(i)}));
    if (i % 3 != 1) expected += i * i;
  }
  for (int i = 0; i < 150; ++i) {
    inputs.push_back(i % 3 == 2 ? TestTensor() : TestTensor({1}, DType::u8, {i % 3 == 0 ? 1.0 : 0.0}));
  }
  Tensors out = run(inputs, {TestTensor({1}, DType::f64)}, [](Backend& b, KernelContext& c, Views in, Views out) {
    b.run(c, kernels::SquaredNorm{in.first(150), in.subspan(150), out[0]});
  });
  EXPECT_EQ(out[0].values()[0], expected);
}

INSTANTIATE_TEST_SUITE_P(Backends, ReduceTest, ::testing::ValuesIn(kernel_cases()), kernel_case_name);

}  // namespace
}  // namespace lockstep::testing
