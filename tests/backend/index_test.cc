#include "tests/backend/kernel_testing.h"
#include "tests/expect_error.h"

namespace lockstep::testing {
namespace {

class IndexTest : public KernelTest {
 protected:
  struct Extents {
    std::int64_t outer, m, n, inner;
  };
  const std::vector<Extents> extents_{{1, 9, 5, 15}, {1, 4, 100, 1}, {3, 7, 4, 8}, {2, 5, 3, 300},
                                      {1, 3, 0, 4},  {0, 3, 2, 4},   {2, 6, 1, 0}};

  // Calls body with an index for every place of the other axes, and with one for all.
  template <typename Body>
  void for_each_index(const Body& body) {
    for (const auto& [outer, m, n, inner] : extents_) {
      for (const Shape& shape : std::vector<Shape>{{outer, n, inner}, {1, n, 1}, {outer, n, 1}, {1, n, inner}}) {
        SCOPED_TRACE(::testing::Message() << m << " by " << shape.str());
        body(Extents{outer, m, n, inner}, random_.integers(0, m - 1, shape));
      }
    }
  }
};

void take(Backend& b, KernelContext& c, Views in, Views out) { b.run(c, kernels::Take{in[0], in[1], out[0]}); }
void scatter_sum(Backend& b, KernelContext& c, Views in, Views out) {
  b.run(c, kernels::ScatterSum{in[0], in[1], out[0]});
}

// All places get a number first, so that the result has no unknown ones.
void scatter(Backend& b, KernelContext& c, Views in, Views out) {
  b.run(c, kernels::Fill{7, out[0]});
  b.run(c, kernels::Scatter{in[0], in[1], out[0]});
}

// Few places for many numbers: the last one stays.
TEST_P(IndexTest, Scatters) {
  for_each_index([&](const Extents& e, const TestTensor& index) {
    expect_same_bits_as_reference({input({e.outer, e.n, e.inner}), index}, {output({e.outer, e.m, e.inner})}, scatter);
  });
  const TestTensor index({1, 4, 1}, DType::i64, {2, 0, 2, 0});
  EXPECT_EQ(run({TestTensor({1, 4, 1}, dtype(), {1, 2, 3, 4}), index}, {output({1, 3, 1})}, scatter)[0].values(),
            (std::vector<double>{4, 7, 3}));
  EXPECT_EQ(
      run({TestTensor({1, 4, 1}, DType::i64, {1, 2, 3, 4}), index}, {TestTensor({1, 3, 1}, DType::i64)}, scatter)[0]
          .values(),
      (std::vector<double>{4, 7, 3}));
}

TEST_P(IndexTest, Takes) {
  for_each_index([&](const Extents& e, const TestTensor& index) {
    expect_same_bits_as_reference({input({e.outer, e.m, e.inner}), index}, {output({e.outer, e.n, e.inner})}, take);
  });
}

TEST_P(IndexTest, TakesIntegers) {
  const TestTensor index = random_.integers(0, 8, {1, 20, 1});
  expect_same_bits_as_reference({random_.integers(-5, 5, {2, 9, 3}), index}, {TestTensor({2, 20, 3}, DType::i64)},
                                take);
  TestTensor bytes = random_.integers(0, 255, {1, 9, 1}).to(DType::u8, Layout::plain);
  expect_same_bits_as_reference({bytes, index}, {TestTensor({1, 20, 1}, DType::u8)}, take);
}

TEST_P(IndexTest, AddsUpByIndex) {
  for_each_index([&](const Extents& e, const TestTensor& index) {
    expect_matches_reference({random_.tensor_between(0, 1, {e.outer, e.n, e.inner}, dtype()), index},
                             {output({e.outer, e.m, e.inner})}, scatter_sum);
  });
}

// (1 + tiny) + ... differs from 1 + (tiny + ...).
TEST_P(IndexTest, AddsInTheOrderOfTheIndex) {
  if (dtype() != DType::f32 && dtype() != DType::f64) return;
  const double tiny = dtype() == DType::f32 ? 0x1p-24 : 0x1p-53;
  TestTensor x({1, 6, 1}, dtype(), {1, tiny, tiny, tiny, tiny, 1}), index({1, 6, 1}, DType::i64, {0, 0, 0, 1, 1, 1});
  if (GetParam().name.starts_with("reference")) return;  // which sums in f64
  EXPECT_EQ(run({x, index}, {output({1, 2, 1})}, scatter_sum)[0].values(), (std::vector<double>{1, 1 + 2 * tiny}));
}

TEST_P(IndexTest, RefusesNumbersThatAreNotThere) {
  EXPECT_ERROR(run({input({1, 4, 3}), TestTensor({1, 2, 1}, DType::i64, {3, 4})}, {output({1, 2, 3})}, take),
               "index: 4 at place 1 is outside [0, 4)");
  EXPECT_ERROR(run({input({1, 4, 3}), TestTensor({1, 1, 1}, DType::i64, {-1})}, {output({1, 1, 3})}, take),
               "index: -1 at place 0 is outside [0, 4)");
  EXPECT_ERROR(run({input({1, 2, 1}), TestTensor({1, 2, 1}, DType::i64, {0, 2})}, {output({1, 2, 1})}, scatter_sum),
               "index: 2 at place 1 is outside [0, 2)");
  EXPECT_ERROR(run({input({1, 2, 1}), TestTensor({1, 2, 1}, DType::i64, {0, 2})}, {output({1, 2, 1})}, scatter),
               "index: 2 at place 1 is outside [0, 2)");
}

INSTANTIATE_TEST_SUITE_P(Backends, IndexTest, ::testing::ValuesIn(kernel_cases()), kernel_case_name);

}  // namespace
}  // namespace lockstep::testing
