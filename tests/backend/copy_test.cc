#include <array>
#include <limits>

#include "tests/backend/kernel_testing.h"

namespace lockstep::testing {
namespace {

class CopyTest : public KernelTest {};

void copy(Backend& b, KernelContext& c, Views in, Views out) { b.run(c, kernels::Copy{in[0], out[0]}); }

TEST_P(CopyTest, EveryPairOfDtypes) {
  for (DType to : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i64, DType::u8, DType::boolean}) {
    SCOPED_TRACE(name(to));
    for (const Shape& shape : std::vector<Shape>{{1037}, {3, 5, 7}, {}, {0, 4}}) {
      TestTensor x = random_.tensor_between(0, 255, shape, dtype());
      expect_same_bits_as_reference({x}, {TestTensor(shape, to)}, copy);
      expect_same_bits_as_reference({x.to(to, Layout::plain)}, {output(shape)}, copy);
    }
  }
}

TEST_P(CopyTest, EveryPairOfLayouts) {
  for (const Shape& shape :
       std::vector<Shape>{{2, 16, 5, 7}, {1, 48, 3, 1}, {3, 5, 4, 4}, {2, 1, 6, 3}, {4, 32, 1, 1}, {0, 16, 2, 2}}) {
    for (Layout from : layouts_that_fit(shape)) {
      for (Layout to : layouts_that_fit(shape)) {
        SCOPED_TRACE(shape.str() + " " + std::string(name(from)) + " to " + std::string(name(to)));
        for (DType type : {dtype(), DType::f32, DType::i64}) {
          TestTensor x = random_.tensor_between(-50, 50, shape, dtype(), from);
          expect_same_bits_as_reference({x}, {TestTensor(shape, type, to)}, copy);
        }
      }
    }
  }
}

TEST_P(CopyTest, RoundsToNearestEven) {
  // bf16 has 7 bits of mantissa: the halves between neighbors go to the even one.
  TestTensor x({6}, DType::f32, {1 + 1.0 / 256, 1 + 3.0 / 256, 1 + 1.01 / 256, 1 + 0.99 / 256, -1 - 3.0 / 256, 3e38});
  TestTensor y = run({x}, {TestTensor({6}, DType::bf16)}, copy)[0];
  std::vector<double> expected{1, 1 + 4.0 / 256, 1 + 2.0 / 256, 1, -1 - 4.0 / 256, 0};
  expected[5] = static_cast<float>(BFloat16(3e38f));
  EXPECT_EQ(y.values(), expected);
}

// f16 has 10 bits of mantissa, and fewer below 2^-14.
TEST_P(CopyTest, RoundsToF16) {
  const double infinity = std::numeric_limits<double>::infinity();
  TestTensor x(
      {9}, DType::f32,
      {1 + 1.0 / 2048, 1 + 3.0 / 2048, -1 - 1.01 / 2048, 65519.99, -65520, 0x1.8p-24, 0x1p-25, -0x1.02p-25, 3e38});
  TestTensor y = run({x}, {TestTensor({9}, DType::f16)}, copy)[0];
  EXPECT_EQ(y.values(), (std::vector<double>{1, 1 + 4.0 / 2048, -1 - 2.0 / 2048, 65504, -infinity, 0x1p-23, 0, -0x1p-24,
                                             infinity}));
}

// Strides of a plain tensor of this shape.
std::array<std::int64_t, Shape::kMaxDim> strides(const Shape& shape) {
  std::array<std::int64_t, Shape::kMaxDim> result{};
  std::int64_t stride = 1;
  for (int axis = shape.dim() - 1; axis >= 0; --axis) {
    result[static_cast<std::size_t>(axis)] = stride;
    stride *= shape[axis];
  }
  return result;
}

Kernel strided(const StridedCopy& copy) {
  return [copy](Backend& b, KernelContext& c, Views in, Views out) {
    b.run(c, kernels::CopyStrided{copy, in[0], out[0]});
  };
}

TEST_P(CopyTest, Permutes) {
  const std::vector<std::pair<Shape, std::vector<int>>> cases{{{5, 37}, {1, 0}},
                                                              {{2, 3, 4, 5}, {0, 2, 3, 1}},
                                                              {{2, 3, 4, 5}, {3, 1, 0, 2}},
                                                              {{2, 3, 4}, {0, 1, 2}},
                                                              {{2, 1, 3, 2, 2, 3}, {5, 3, 1, 0, 2, 4}},
                                                              {{4, 0, 2}, {2, 0, 1}},
                                                              {{7}, {0}}};
  for (const auto& [shape, axes] : cases) {
    SCOPED_TRACE(shape.str());
    StridedCopy copy{.extent = shape};
    const auto from = strides(shape);
    for (int i = 0; i < shape.dim(); ++i) copy.extent[i] = shape[axes[i]];
    for (int i = 0; i < shape.dim(); ++i) copy.from[i] = from[axes[i]];
    copy.to = strides(copy.extent);
    for (DType type : {dtype(), DType::i64, DType::u8}) {
      TestTensor x = random_.tensor_between(0, 255, shape).to(type, Layout::plain);
      expect_same_bits_as_reference({x}, {TestTensor(copy.extent, type)}, strided(copy));
    }
  }
}

// Slices with steps out of a tensor and into one, and repeated elements. Elements that are not written stay poisoned.
TEST_P(CopyTest, CopiesBetweenAnyStrides) {
  for (int round = 0; round < 200; ++round) {
    const int rank = static_cast<int>(random_.integer(0, 4));
    Shape x, y;
    StridedCopy copy;
    std::vector<std::int64_t> extents, sources, results;
    std::vector<std::array<std::int64_t, 2>> steps, firsts;
    for (int i = 0; i < rank; ++i) {
      const std::int64_t extent = random_.integer(round % 20 == 0 ? 0 : 1, i == 0 ? 40 : 5);
      extents.push_back(extent);
      steps.push_back({random_.integer(0, 2), random_.integer(1, 2)});
      firsts.push_back({random_.integer(0, 2), random_.integer(0, 2)});
      sources.push_back(firsts[i][0] + steps[i][0] * extent + 1);
      results.push_back(firsts[i][1] + steps[i][1] * extent + 1);
    }
    copy.extent = Shape(extents);
    x = Shape(sources);
    y = Shape(results);
    const auto from = strides(x), to = strides(y);
    for (int i = 0; i < rank; ++i) {
      copy.from[i] = from[i] * steps[i][0];
      copy.to[i] = to[i] * steps[i][1];
      copy.from_first += from[i] * firsts[i][0];
      copy.to_first += to[i] * firsts[i][1];
    }
    SCOPED_TRACE(x.str() + " to " + y.str());
    expect_same_bits_as_reference({input(x)}, {output(y)}, strided(copy));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, CopyTest, ::testing::ValuesIn(kernel_cases()), kernel_case_name);

}  // namespace
}  // namespace lockstep::testing
