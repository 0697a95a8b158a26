#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tests/backend/kernel_testing.h"
#include "tests/expect_error.h"

namespace lockstep::testing {
namespace {

const std::vector<Unary> kUnary{UnaryOp::negate,
                                UnaryOp::exp,
                                UnaryOp::log,
                                UnaryOp::log1p,
                                UnaryOp::sqrt,
                                UnaryOp::square,
                                UnaryOp::abs,
                                UnaryOp::sign,
                                UnaryOp::reciprocal,
                                UnaryOp::rsqrt,
                                UnaryOp::sin,
                                UnaryOp::cos,
                                UnaryOp::relu,
                                UnaryOp::gelu,
                                UnaryOp::silu,
                                UnaryOp::sigmoid,
                                UnaryOp::tanh,
                                {UnaryOp::elu, 1.5},
                                {UnaryOp::leaky_relu, 0.2},
                                {UnaryOp::softplus, 1, 20},
                                {UnaryOp::softplus, 4, 2},
                                {UnaryOp::clamp, -0.7, 0.9},
                                {UnaryOp::clamp, -INFINITY, 0.5},
                                UnaryOp::floor,
                                UnaryOp::ceil,
                                UnaryOp::round,
                                UnaryOp::trunc,
                                UnaryOp::expm1,
                                UnaryOp::log2,
                                UnaryOp::log10,
                                UnaryOp::tan,
                                UnaryOp::erf,
                                {UnaryOp::pow, 1.7},
                                {UnaryOp::pow, -2}};
constexpr std::array kBinary{BinaryOp::add,          BinaryOp::subtract,     BinaryOp::multiply, BinaryOp::divide,
                             BinaryOp::maximum,      BinaryOp::minimum,      BinaryOp::pow,      BinaryOp::atan2,
                             BinaryOp::divide_trunc, BinaryOp::divide_floor, BinaryOp::remainder};
// Those of kBinary that whole numbers have, too, and those that only they have.
std::vector<BinaryOp> of_integers() {
  std::vector<BinaryOp> ops{BinaryOp::bit_and, BinaryOp::bit_or, BinaryOp::bit_xor};
  std::ranges::copy_if(kBinary, std::back_inserter(ops), takes_integers);
  return ops;
}
constexpr std::array kCompare{CompareOp::eq, CompareOp::ne, CompareOp::lt, CompareOp::le};

// Long enough for vector loops, with a rest; images in all layouts; a scalar; nothing.
const std::vector<Shape> kShapes{{1037}, {7, 3, 5}, {3, 16, 5, 7}, {2, 5, 3, 3}, {}, {0, 16, 2, 2}};

struct Broadcast {
  Shape a, b, out;
};
const std::vector<Broadcast> kBroadcasts{{{5, 37}, {37}, {5, 37}},
                                         {{37}, {5, 37}, {5, 37}},
                                         {{5, 1}, {1, 37}, {5, 37}},
                                         {{}, {4, 3}, {4, 3}},
                                         {{4, 3}, {1}, {4, 3}},
                                         {{2, 16, 3, 5}, {16, 1, 1}, {2, 16, 3, 5}},
                                         {{2, 1, 3, 1}, {1, 4, 1, 5}, {2, 4, 3, 5}},
                                         {{6, 1, 5}, {6, 7, 5}, {6, 7, 5}},
                                         {{0, 3}, {3}, {0, 3}},
                                         {{1}, {1}, {1, 1}}};

class ElementwiseTest : public KernelTest {
 protected:
  // Numbers for which op and its derivative are defined and not small.
  TestTensor operand(const Unary& op, const Shape& shape, Layout layout = Layout::plain) {
    bool positive = op.op == UnaryOp::log || op.op == UnaryOp::sqrt || op.op == UnaryOp::rsqrt ||
                    op.op == UnaryOp::reciprocal || op.op == UnaryOp::pow || op.op == UnaryOp::log2 ||
                    op.op == UnaryOp::log10;
    const double low = op.op == UnaryOp::log1p ? -0.9 : op.op == UnaryOp::tan ? -1.3 : positive ? 0.3 : -3;
    return random_.tensor_between(low, op.op == UnaryOp::tan ? 1.3 : 3, shape, dtype(), layout);
  }

  // Powers of negative numbers are NaN.
  TestTensor left(BinaryOp op, const Shape& shape, Layout layout = Layout::plain) {
    return op == BinaryOp::pow ? random_.tensor_between(0.3, 3, shape, dtype(), layout) : input(shape, layout);
  }
};

TEST_P(ElementwiseTest, Unary) {
  for (const Unary& op : kUnary) {
    for (const Shape& shape : kShapes) {
      for (Layout layout : layouts_that_fit(shape)) {
        SCOPED_TRACE(::testing::Message() << "operation " << static_cast<int>(op.op) << ", shape " << shape.str());
        expect_matches_reference({operand(op, shape, layout)}, {output(shape, layout)},
                                 [&](Backend& b, KernelContext& c, Views in, Views out) {
                                   b.run(c, kernels::Unary{op, in[0], out[0]});
                                 });
      }
    }
  }
}

TEST_P(ElementwiseTest, UnaryBackward) {
  for (const Unary& op : kUnary) {
    for (const Shape& shape : kShapes) {
      SCOPED_TRACE(::testing::Message() << "operation " << static_cast<int>(op.op) << ", shape " << shape.str());
      TestTensor saved = operand(op, shape);
      if (unary_saves_output(op.op)) {
        saved = run({saved}, {output(shape)}, [&](Backend& b, KernelContext& c, Views in, Views out) {
          b.run(c, kernels::Unary{op, in[0], out[0]});
        })[0];
      }
      expect_matches_reference({saved, input(shape)}, {output(shape)},
                               [&](Backend& b, KernelContext& c, Views in, Views out) {
                                 b.run(c, kernels::UnaryBackward{op, in[0], in[1], out[0]});
                               });
    }
  }
}

TEST_P(ElementwiseTest, UnaryFarFromZero) {
  for (const Unary& op : std::initializer_list<Unary>{UnaryOp::gelu,
                                                      UnaryOp::sigmoid,
                                                      UnaryOp::tanh,
                                                      UnaryOp::relu,
                                                      UnaryOp::silu,
                                                      UnaryOp::sin,
                                                      UnaryOp::cos,
                                                      {UnaryOp::elu, 1},
                                                      {UnaryOp::softplus, 1, 20}}) {
    TestTensor x({6}, dtype(), {-200, -30, -8, 8, 30, 200});
    expect_matches_reference({x}, {output({6})}, [&](Backend& b, KernelContext& c, Views in, Views out) {
      b.run(c, kernels::Unary{op, in[0], out[0]});
    });
  }
}

TEST_P(ElementwiseTest, ReluLetsNanThrough) {
  TestTensor nan({40}, dtype());
  for (double y : run({nan}, {TestTensor({40}, dtype())},
                      [](Backend&b, KernelContext&c, Views in, Views out) {
                        b.run(c, kernels::Fill{1, out[0]});
                        b.run(c, kernels::Unary{UnaryOp::relu, in[0], out[0]});
                      })[0]
                      .values()) {
    EXPECT_NE(y, y);
  }
}

TEST_P(ElementwiseTest, UnaryInPlace) {
  Shape shape{67, 5};
  for (const Unary& op : kUnary) {
    expect_in_place({operand(op, shape)}, {output(shape)}, 0, 0,
                    [&](Backend& b, KernelContext& c, Views in, Views out) {
                      b.run(c, kernels::Unary{op, in[0], out[0]});
                    });
    expect_in_place({operand(op, shape), input(shape)}, {output(shape)}, 1, 0,
                    [&](Backend& b, KernelContext& c, Views in, Views out) {
                      b.run(c, kernels::UnaryBackward{op, in[0], in[1], out[0]});
                    });
  }
}

TEST_P(ElementwiseTest, BinaryOfOneShape) {
  for (BinaryOp op : kBinary) {
    for (const Shape& shape : kShapes) {
      for (Layout layout : layouts_that_fit(shape)) {
        Kernel kernel = [&](Backend& b, KernelContext& c, Views in, Views out) {
          b.run(c, kernels::Binary{op, in[0], in[1], out[0]});
        };
        Tensors inputs{left(op, shape, layout), random_.tensor_between(0.5, 2, shape, dtype(), layout)};
        expect_matches_reference(inputs, {output(shape, layout)}, kernel);
        expect_in_place(inputs, {output(shape, layout)}, 0, 0, kernel);
        expect_in_place(inputs, {output(shape, layout)}, 1, 0, kernel);
      }
    }
  }
}

TEST_P(ElementwiseTest, BinaryBroadcasts) {
  for (BinaryOp op : kBinary) {
    for (const Broadcast& shapes : kBroadcasts) {
      SCOPED_TRACE(shapes.a.str() + " and " + shapes.b.str());
      expect_matches_reference({left(op, shapes.a), random_.tensor_between(0.5, 2, shapes.b, dtype())},
                               {output(shapes.out)}, [&](Backend& b, KernelContext& c, Views in, Views out) {
                                 b.run(c, kernels::Binary{op, in[0], in[1], out[0]});
                               });
    }
  }
}

// Beyond 2^53, which f64 would round.
TEST_P(ElementwiseTest, IntegersAreExact) {
  const std::int64_t large = std::int64_t{1} << 60;
  for (BinaryOp op : of_integers()) {
    for (const Broadcast& shapes : kBroadcasts) {
      TestTensor a = random_.integers(-9, 9, shapes.a), b = random_.integers(divides(op) ? 1 : -9, 9, shapes.b);
      for (std::int64_t i = 0; i < shapes.a.numel(); ++i) a.view().as<std::int64_t>()[i] += large;
      expect_same_bits_as_reference({a, b}, {TestTensor(shapes.out, DType::i64)},
                                    [&](Backend& b, KernelContext& c, Views in, Views out) {
                                      b.run(c, kernels::Binary{op, in[0], in[1], out[0]});
                                    });
    }
  }
  TestTensor more({1}, DType::i64);
  *more.view().as<std::int64_t>() = large;
  const Tensors sum = run({TestTensor({2}, DType::i64, {1, 2}), more}, {TestTensor({2}, DType::i64)},
                          [&](Backend& b, KernelContext& c, Views in, Views out) {
                            b.run(c, kernels::Binary{BinaryOp::add, in[0], in[1], out[0]});
                          });
  EXPECT_EQ(sum[0].view().as<std::int64_t>()[1], large + 2);
}

TEST_P(ElementwiseTest, BytesWrap) {
  for (BinaryOp op : of_integers()) {
    const Kernel kernel = [&](Backend& b, KernelContext& c, Views in, Views out) {
      b.run(c, kernels::Binary{op, in[0], in[1], out[0]});
    };
    for (const Broadcast& shapes : kBroadcasts) {
      const TestTensor a = random_.integers(0, 255, shapes.a).to(DType::u8, Layout::plain);
      const TestTensor b = random_.integers(divides(op) ? 1 : 0, 255, shapes.b).to(DType::u8, Layout::plain);
      expect_same_bits_as_reference({a, b}, {TestTensor(shapes.out, DType::u8)}, kernel);
    }
    if (op != BinaryOp::add) continue;
    EXPECT_EQ(run({TestTensor({2}, DType::u8, {255, 1}), TestTensor({2}, DType::u8, {2, 2})},
                  {TestTensor({2}, DType::u8)}, kernel)[0]
                  .values(),
              (std::vector<double>{1, 3}));
  }
}

// The bits of these functions follow from IEEE 754: halves go to the even number, -0.0 stays.
TEST_P(ElementwiseTest, RoundsToWholeNumbers) {
  const std::vector<double> x{-2.5, -1.5, -0.5, -0.25, -0.0, 0.25, 0.5, 1.5, 2.5, 7, INFINITY, -INFINITY};
  const std::pair<UnaryOp, std::vector<double>> cases[] = {
      {UnaryOp::floor, {-3, -2, -1, -1, -0.0, 0, 0, 1, 2, 7, INFINITY, -INFINITY}},
      {UnaryOp::ceil, {-2, -1, -0.0, -0.0, -0.0, 1, 1, 2, 3, 7, INFINITY, -INFINITY}},
      {UnaryOp::round, {-2, -2, -0.0, -0.0, -0.0, 0, 0, 2, 2, 7, INFINITY, -INFINITY}},
      {UnaryOp::trunc, {-2, -1, -0.0, -0.0, -0.0, 0, 0, 1, 2, 7, INFINITY, -INFINITY}}};
  for (const auto& [op, expected] : cases) {
    const Tensors y = run({TestTensor({12}, dtype(), Layout::plain, x)}, {output({12})},
                          [op = op](Backend& b, KernelContext& c, Views in, Views out) {
                            b.run(c, kernels::Unary{op, in[0], out[0]});
                          });
    EXPECT_TRUE(y[0].same_bits(TestTensor({12}, dtype(), Layout::plain, expected))) << static_cast<int>(op);
  }
}

// As Python's // and %, and C's / for trunc. The quotient of 1 and f32's 0.1, rounded, is 10, but 0.1 is more than a
// tenth.
TEST_P(ElementwiseTest, DividesToWholeNumbers) {
  const auto divide = [&](BinaryOp op, DType type, const std::vector<double>& a, const std::vector<double>& b) {
    const Shape shape{std::ssize(a)};
    return run({TestTensor(shape, type, Layout::plain, a), TestTensor(shape, type, Layout::plain, b)},
               {TestTensor(shape, type)}, [op](Backend& k, KernelContext& c, Views in, Views out) {
                 k.run(c, kernels::Binary{op, in[0], in[1], out[0]});
               })[0];
  };
  const std::vector<double> a{7, -7, 7, -7, 6, -6, 0}, b{3, 3, -3, -3, -3, 3, 5};
  for (DType type : {dtype(), DType::i64}) {
    EXPECT_EQ(divide(BinaryOp::divide_trunc, type, a, b).values(), (std::vector<double>{2, -2, -2, 2, -2, -2, 0}));
    EXPECT_EQ(divide(BinaryOp::divide_floor, type, a, b).values(), (std::vector<double>{2, -3, -3, 2, -2, -2, 0}));
    EXPECT_EQ(divide(BinaryOp::remainder, type, a, b).values(), (std::vector<double>{1, 2, -2, -1, 0, 0, 0}));
  }
  if (dtype() == DType::f32) {
    EXPECT_EQ(divide(BinaryOp::divide_floor, DType::f32, {1, 4, -1}, {0.1F, 0, 0}).values(),
              (std::vector<double>{9, INFINITY, -INFINITY}));
  }
  // The smallest number is the opposite of none.
  TestTensor least({1}, DType::i64), minus_one({1}, DType::i64, {-1}), none({1}, DType::i64, {0});
  *least.view().as<std::int64_t>() = std::numeric_limits<std::int64_t>::min();
  for (BinaryOp op : {BinaryOp::divide_trunc, BinaryOp::divide_floor, BinaryOp::remainder}) {
    const Kernel kernel = [op](Backend& k, KernelContext& c, Views in, Views out) {
      k.run(c, kernels::Binary{op, in[0], in[1], out[0]});
    };
    EXPECT_EQ(*run({least, minus_one}, {TestTensor({1}, DType::i64)}, kernel)[0].view().as<std::int64_t>(),
              op == BinaryOp::remainder ? 0 : std::numeric_limits<std::int64_t>::min());
    EXPECT_ERROR(run({least, none}, {TestTensor({1}, DType::i64)}, kernel), "divide: element 0 of the divisor is 0");
  }
}

// Few different numbers, so that some are equal.
TEST_P(ElementwiseTest, Compares) {
  for (CompareOp op : kCompare) {
    const Kernel kernel = [&](Backend& b, KernelContext& c, Views in, Views out) {
      b.run(c, kernels::Compare{op, in[0], in[1], out[0]});
    };
    for (const Broadcast& shapes : kBroadcasts) {
      SCOPED_TRACE(shapes.a.str() + " and " + shapes.b.str());
      for (DType type : {dtype(), DType::i64, DType::u8, DType::boolean}) {
        const TestTensor a = random_.integers(0, 3, shapes.a).to(type, Layout::plain);
        const TestTensor b = random_.integers(0, 3, shapes.b).to(type, Layout::plain);
        expect_same_bits_as_reference({a, b}, {TestTensor(shapes.out, DType::boolean)}, kernel);
      }
    }
    for (const Shape& shape : kShapes) {
      for (Layout layout : layouts_that_fit(shape)) {
        expect_same_bits_as_reference({input(shape, layout), input(shape, layout)},
                                      {TestTensor(shape, DType::boolean, layout)}, kernel);
      }
    }
  }
}

TEST_P(ElementwiseTest, NanDiffersFromEverything) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  TestTensor a({3}, dtype(), {nan, 1, nan}), b({3}, dtype(), {nan, nan, 1});
  const std::vector<double> none{0, 0, 0}, all{1, 1, 1};
  for (CompareOp op : kCompare) {
    EXPECT_EQ(run({a, b}, {TestTensor({3}, DType::boolean)},
                  [&](Backend& k, KernelContext& c, Views in, Views out) {
                    k.run(c, kernels::Compare{op, in[0], in[1], out[0]});
                  })[0]
                  .values(),
              op == CompareOp::ne ? all : none);
  }
  for (BinaryOp op : {BinaryOp::maximum, BinaryOp::minimum}) {
    for (double y : run({a, b}, {output({3})},
                        [&](Backend&k, KernelContext&c, Views in, Views out) {
                          k.run(c, kernels::Binary{op, in[0], in[1], out[0]});
                        })[0]
                        .values()) {
      EXPECT_NE(y, y);
    }
  }
}

// f64 does not hold 2^53 + 1.
TEST_P(ElementwiseTest, ComparesEveryInteger) {
  TestTensor a({1}, DType::i64), b({1}, DType::i64);
  *a.view().as<std::int64_t>() = (std::int64_t{1} << 53) + 1;
  *b.view().as<std::int64_t>() = std::int64_t{1} << 53;
  EXPECT_EQ(run({a, b}, {TestTensor({1}, DType::boolean)},
                [](Backend& k, KernelContext& c, Views in, Views out) {
                  k.run(c, kernels::Compare{CompareOp::eq, in[0], in[1], out[0]});
                })[0]
                .values()[0],
            0);
}

TEST_P(ElementwiseTest, ChoosesByAMask) {
  const Kernel kernel = [](Backend& b, KernelContext& c, Views in, Views out) {
    b.run(c, kernels::Where{in[0], in[1], in[2], out[0]});
  };
  const auto mask = [&](const Shape& shape) { return random_.integers(0, 1, shape).to(DType::u8, Layout::plain); };
  for (const auto& [a, b, out] : kBroadcasts) {
    SCOPED_TRACE(a.str() + " and " + b.str());
    for (DType type : {dtype(), DType::i64, DType::u8, DType::boolean}) {
      const auto numbers = [&](const Shape& shape) { return random_.integers(0, 200, shape).to(type, Layout::plain); };
      for (const Shape& condition : {a, b, out, Shape{}, Shape{1}}) {
        expect_same_bits_as_reference({mask(condition), numbers(a), numbers(b)}, {TestTensor(out, type)}, kernel);
        expect_same_bits_as_reference({mask(out), numbers(condition), numbers(b)}, {TestTensor(out, type)}, kernel);
        expect_same_bits_as_reference({mask(b), numbers(a), numbers(condition)}, {TestTensor(out, type)}, kernel);
      }
    }
  }
}

TEST_P(ElementwiseTest, CountsUp) {
  for (DType type : {dtype(), DType::i64, DType::u8}) {
    for (const Shape& shape : std::vector<Shape>{{100}, {0}, {3, 20}}) {
      expect_same_bits_as_reference({}, {TestTensor(shape, type)}, [](Backend& b, KernelContext& c, Views, Views out) {
        b.run(c, kernels::Arange{7, 2, out[0]});
      });
    }
  }
}

TEST_P(ElementwiseTest, Affine) {
  for (const Shape& shape : kShapes) {
    for (Layout layout : layouts_that_fit(shape)) {
      Kernel kernel = [](Backend& b, KernelContext& c, Views in, Views out) {
        b.run(c, kernels::Affine{-1.75, 0.5, in[0], out[0]});
      };
      expect_matches_reference({input(shape, layout)}, {output(shape, layout)}, kernel);
      expect_in_place({input(shape, layout)}, {output(shape, layout)}, 0, 0, kernel);
    }
  }
}

TEST_P(ElementwiseTest, FillsAnyDtype) {
  for (DType type : {dtype(), DType::f32, DType::f64, DType::i64, DType::u8}) {
    for (const Shape& shape : kShapes) {
      expect_same_bits_as_reference({}, {TestTensor(shape, type)}, [](Backend& b, KernelContext& c, Views, Views out) {
        b.run(c, kernels::Fill{3, out[0]});
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ElementwiseTest, ::testing::ValuesIn(kernel_cases()), kernel_case_name);

}  // namespace
}  // namespace lockstep::testing
