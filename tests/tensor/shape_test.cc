#include "lockstep/tensor/shape.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "lockstep/tensor/array.h"
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
  EXPECT_ERROR((Shape{kHuge, kHuge}).numel(), "shape: [4294967296, 4294967296] has more elements than can be counted");
  EXPECT_ERROR((Shape{3, kMost / 2}).numel(), "more elements than can be counted");
  EXPECT_ERROR((Shape{-1, -1}).numel(), "shape: [-1, -1] has a negative extent");
  EXPECT_ERROR((Shape{kHuge, kHuge, -1}).numel(), "has a negative extent");
  EXPECT_ERROR((Shape{0, -1}).numel(), "has a negative extent");
}

TEST(Shape, NoArrayIsMadeOfWhatCannotBeCounted) {
  for (const Shape& shape : {Shape{kHuge, kHuge}, Shape{-1, -1}, Shape{kHuge, kHuge, kHuge, kHuge}}) {
    EXPECT_ERROR(Array::host(shape), "shape: " + shape.str());
    EXPECT_ERROR(Array::from(std::vector<float>(1), shape), "shape: " + shape.str());
  }
  // The elements can be counted, the bytes cannot.
  EXPECT_ERROR(Array::host({kHuge, kHuge / 4}, DType::i64),
               "array: shape [4294967296, 1073741824] of i64 has more bytes than can be counted");
  // Nor does memory hold what can.
  EXPECT_ERROR(Array::host({kHuge, kHuge / 16}), "out of memory");
}

}  // namespace
}  // namespace lockstep
