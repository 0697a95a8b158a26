#include "lockstep/tensor/shape.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"

namespace lockstep {
namespace {

constexpr std::int64_t kHuge = std::int64_t{1} << 32;
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

TEST(Shape, CountsItsElements) {
  EXPECT_EQ(Shape{}.numel(), 1);
  EXPECT_EQ((Shape{2, 3, 4}).numel(), 24);
  EXPECT_EQ(Shape{kMost}.numel(), kMost);
  // None, however many there would be without the 0.
  EXPECT_EQ((Shape{kHuge, kHuge, 0}).numel(), 0);
  EXPECT_EQ((Shape{0, kHuge, kHuge, kHuge}).numel(), 0);
}

TEST(Shape, ElementsThatCannotBeCountedAreAnError) {
  EXPECT_ERROR((Shape{kHuge, kHuge}).numel(),
               "tensor: shape [4294967296, 4294967296] has more elements than can be counted");
  EXPECT_ERROR((Shape{3, kMost / 2}).numel(), "more elements than can be counted");
  EXPECT_ERROR((Shape{-1, -1}).numel(), "tensor: shape [-1, -1] has a negative extent");
  EXPECT_ERROR((Shape{kHuge, kHuge, -1}).numel(), "has a negative extent");
  EXPECT_ERROR((Shape{0, -1}).numel(), "has a negative extent");
}

TEST(Shape, NoTensorIsMadeOfWhatCannotBeCounted) {
  Runtime runtime;
  const Device device = runtime.devices()[0];
  for (const Shape& shape : {Shape{kHuge, kHuge}, Shape{-1, -1}, Shape{kHuge, kHuge, kHuge, kHuge}}) {
    EXPECT_ERROR(Array::host(shape), "tensor: shape " + shape.str());
    EXPECT_ERROR(ops::empty(shape, DType::f32, device), "tensor: shape " + shape.str());
    EXPECT_ERROR(ops::empty_host(shape, DType::f32, device), "tensor: shape " + shape.str());
    EXPECT_ERROR(Array::from(std::vector<float>(1), shape), "tensor: shape " + shape.str());
  }
  // The elements can be counted, the bytes cannot.
  const Shape bytes{kHuge, kHuge / 4};
  EXPECT_ERROR(ops::empty(bytes, DType::f64, device),
               "tensor: shape [4294967296, 1073741824] of f64 has more bytes than can be counted");
  EXPECT_ERROR(Array::host(bytes, DType::i64), "more bytes than can be counted");
  // Nor does memory hold what can.
  EXPECT_ERROR(ops::empty({kHuge, kHuge / 16}, DType::f32, device), "out of memory");
  EXPECT_ERROR(Array::host({kHuge, kHuge / 16}), "out of memory");
}

TEST(Shape, ViewsDoNotOverflowEither) {
  const Array none = Array::host({0});
  EXPECT_ERROR(none.reshape({kHuge, kHuge, -1}), "more elements than can be counted");
  EXPECT_ERROR(Array::host({4}).narrow(1, kMost), "of a tensor with 4 rows");
  EXPECT_ERROR(Array::host({4}).narrow(kMost, 2), "of a tensor with 4 rows");
}

}  // namespace
}  // namespace lockstep
