#include <array>

#include "tests/backend/kernel_testing.h"

namespace lockstep::testing {
namespace {

constexpr std::array kUnaryOps{UnaryOp::negate,  UnaryOp::exp, UnaryOp::log,  UnaryOp::sqrt,
                               UnaryOp::square,  UnaryOp::abs, UnaryOp::relu, UnaryOp::gelu,
                               UnaryOp::sigmoid, UnaryOp::tanh};
constexpr std::array kBinaryOps{BinaryOp::add, BinaryOp::subtract, BinaryOp::multiply, BinaryOp::divide};

// Long enough for vector loops, with a rest; images in all layouts; a scalar; nothing.
const std::vector<Shape> kShapes{{1037}, {7, 3, 5}, {3, 16, 5, 7}, {2, 5, 3, 3}, {}, {0, 16, 2, 2}};

class ElementwiseTest : public KernelTest {
 protected:
  // Numbers for which op and its derivative are defined and not small.
  TestTensor operand(UnaryOp op, const Shape& shape, Layout layout = Layout::plain) {
    bool positive = op == UnaryOp::log || op == UnaryOp::sqrt;
    return random_.tensor_between(positive ? 0.3 : -3, 3, shape, dtype(), layout);
  }
};

TEST_P(ElementwiseTest, Unary) {
  for (UnaryOp op : kUnaryOps) {
    for (const Shape& shape : kShapes) {
      for (Layout layout : layouts_that_fit(shape)) {
        SCOPED_TRACE(::testing::Message()
                     << "operation " << static_cast<int>(op) << ", shape " << shape.str());
        expect_matches_reference({operand(op, shape, layout)}, {output(shape, layout)},
                                 [&](Backend& b, KernelContext& c, Views in, Views out) {
                                   b.elementwise().unary(c, op, in[0], out[0]);
                                 });
      }
    }
  }
}

TEST_P(ElementwiseTest, UnaryBackward) {
  for (UnaryOp op : kUnaryOps) {
    for (const Shape& shape : kShapes) {
      SCOPED_TRACE(::testing::Message() << "operation " << static_cast<int>(op) << ", shape " << shape.str());
      TestTensor saved = operand(op, shape);
      if (unary_saves_output(op)) {
        saved = run({saved}, {output(shape)}, [&](Backend& b, KernelContext& c, Views in, Views out) {
          b.elementwise().unary(c, op, in[0], out[0]);
        })[0];
      }
      expect_matches_reference({saved, input(shape)}, {output(shape)},
                               [&](Backend& b, KernelContext& c, Views in, Views out) {
                                 b.elementwise().unary_backward(c, op, in[0], in[1], out[0]);
                               });
    }
  }
}

TEST_P(ElementwiseTest, UnaryFarFromZero) {
  for (UnaryOp op : {UnaryOp::gelu, UnaryOp::sigmoid, UnaryOp::tanh, UnaryOp::relu}) {
    TestTensor x({6}, dtype(), {-200, -30, -8, 8, 30, 200});
    expect_matches_reference({x}, {output({6})}, [&](Backend& b, KernelContext& c, Views in, Views out) {
      b.elementwise().unary(c, op, in[0], out[0]);
    });
  }
}

TEST_P(ElementwiseTest, ReluLetsNanThrough) {
  TestTensor nan({40}, dtype());
  for (double y : run({nan}, {TestTensor({40}, dtype())},
                      [](Backend&b, KernelContext&c, Views in, Views out) {
                        b.elementwise().fill(c, 1, out[0]);
                        b.elementwise().unary(c, UnaryOp::relu, in[0], out[0]);
                      })[0]
                      .values()) {
    EXPECT_NE(y, y);
  }
}

TEST_P(ElementwiseTest, UnaryInPlace) {
  Shape shape{67, 5};
  for (UnaryOp op : kUnaryOps) {
    expect_in_place({operand(op, shape)}, {output(shape)}, 0, 0,
                    [&](Backend& b, KernelContext& c, Views in, Views out) {
                      b.elementwise().unary(c, op, in[0], out[0]);
                    });
    expect_in_place({operand(op, shape), input(shape)}, {output(shape)}, 1, 0,
                    [&](Backend& b, KernelContext& c, Views in, Views out) {
                      b.elementwise().unary_backward(c, op, in[0], in[1], out[0]);
                    });
  }
}

TEST_P(ElementwiseTest, BinaryOfOneShape) {
  for (BinaryOp op : kBinaryOps) {
    for (const Shape& shape : kShapes) {
      for (Layout layout : layouts_that_fit(shape)) {
        Kernel kernel = [&](Backend& b, KernelContext& c, Views in, Views out) {
          b.elementwise().binary(c, op, in[0], in[1], out[0]);
        };
        Tensors inputs{input(shape, layout), random_.tensor_between(0.5, 2, shape, dtype(), layout)};
        expect_matches_reference(inputs, {output(shape, layout)}, kernel);
        expect_in_place(inputs, {output(shape, layout)}, 0, 0, kernel);
        expect_in_place(inputs, {output(shape, layout)}, 1, 0, kernel);
      }
    }
  }
}

TEST_P(ElementwiseTest, BinaryBroadcasts) {
  struct Case {
    Shape a, b, out;
  };
  const std::vector<Case> cases{{{5, 37}, {37}, {5, 37}},
                                {{37}, {5, 37}, {5, 37}},
                                {{5, 1}, {1, 37}, {5, 37}},
                                {{}, {4, 3}, {4, 3}},
                                {{4, 3}, {1}, {4, 3}},
                                {{2, 16, 3, 5}, {16, 1, 1}, {2, 16, 3, 5}},
                                {{2, 1, 3, 1}, {1, 4, 1, 5}, {2, 4, 3, 5}},
                                {{6, 1, 5}, {6, 7, 5}, {6, 7, 5}},
                                {{0, 3}, {3}, {0, 3}},
                                {{1}, {1}, {1, 1}}};
  for (BinaryOp op : kBinaryOps) {
    for (const Case& shapes : cases) {
      SCOPED_TRACE(shapes.a.str() + " and " + shapes.b.str());
      expect_matches_reference({input(shapes.a), random_.tensor_between(0.5, 2, shapes.b, dtype())},
                               {output(shapes.out)}, [&](Backend& b, KernelContext& c, Views in, Views out) {
                                 b.elementwise().binary(c, op, in[0], in[1], out[0]);
                               });
    }
  }
}

TEST_P(ElementwiseTest, Affine) {
  for (const Shape& shape : kShapes) {
    for (Layout layout : layouts_that_fit(shape)) {
      Kernel kernel = [](Backend& b, KernelContext& c, Views in, Views out) {
        b.elementwise().affine(c, -1.75, 0.5, in[0], out[0]);
      };
      expect_matches_reference({input(shape, layout)}, {output(shape, layout)}, kernel);
      expect_in_place({input(shape, layout)}, {output(shape, layout)}, 0, 0, kernel);
    }
  }
}

TEST_P(ElementwiseTest, FillsAnyDtype) {
  for (DType type : {dtype(), DType::f32, DType::f64, DType::i64, DType::u8}) {
    for (const Shape& shape : kShapes) {
      expect_same_bits_as_reference(
          {}, {TestTensor(shape, type)},
          [](Backend& b, KernelContext& c, Views, Views out) { b.elementwise().fill(c, 3, out[0]); });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ElementwiseTest, ::testing::ValuesIn(kernel_cases()), kernel_case_name);

}  // namespace
}  // namespace lockstep::testing
