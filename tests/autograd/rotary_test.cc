// Rotary position embeddings beside their formula in f64.
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/autograd/functions.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

using Doubles = std::vector<double>;

class RotaryTest : public ::testing::Test {
 protected:
  Tensor numbers(const Shape& shape, std::uint64_t seed, DType dtype = DType::f32) {
    Random random(seed);
    return make_tensor(random.uniforms(shape.numel()), shape, device_, dtype);
  }

  Runtime runtime_{{.cpu_devices = 1, .cores_per_device = 1, .threads_per_shard = 1}};
  Device device_ = runtime_.devices()[0];
};

TEST_F(RotaryTest, TablesAreTheFormulaRoundedOnce) {
  for (const double base : {10000.0, 500000.0, 1.0}) {
    const RotaryTables tables = rotary_tables(6, 3000, base);
    ASSERT_EQ(tables.cos.shape(), (Shape{3000, 3}));
    ASSERT_EQ(tables.sin.shape(), (Shape{3000, 3}));
    const Doubles cos = values(tables.cos), sin = values(tables.sin);
    for (std::size_t i = 0; i < cos.size(); ++i) {
      const double angle = static_cast<double>(i / 3) * std::pow(base, -static_cast<double>(2 * (i % 3)) / 6);
      // Half a last digit of f32 below 1.
      EXPECT_NEAR(cos[i], std::cos(angle), 0x1p-25 + 1e-11) << i;
      EXPECT_NEAR(sin[i], std::sin(angle), 0x1p-25 + 1e-11) << i;
    }
  }
  // Known once and for all: other machines, compilers and libraries must give the same.
  const RotaryTables tables = rotary_tables(128, 4096);
  EXPECT_EQ(tables.cos.to_vector<float>()[4095 * 64 + 1], -0x1.7c176p-1f);
  EXPECT_EQ(tables.sin.to_vector<float>()[4095 * 64 + 1], 0x1.57098ep-1f);
}

TEST_F(RotaryTest, BothKindsOfPairsFollowTheFormula) {
  constexpr std::int64_t kLength = 5, kSize = 6;
  const Tensor x = numbers({2, kLength, kSize}, 1);
  const RotaryTables tables = rotary_tables(kSize, kLength);
  const Doubles in = values(x);
  for (const bool interleaved : {true, false}) {
    Doubles expected(in.size());
    for (std::size_t row = 0; row < in.size() / kSize; ++row) {
      for (std::size_t i = 0; i < kSize / 2; ++i) {
        const std::size_t a = row * kSize + (interleaved ? 2 * i : i), b = a + (interleaved ? 1 : kSize / 2);
        const double angle = static_cast<double>(row % kLength) * std::pow(10000, -static_cast<double>(2 * i) / kSize);
        expected[a] = in[a] * std::cos(angle) - in[b] * std::sin(angle);
        expected[b] = in[a] * std::sin(angle) + in[b] * std::cos(angle);
      }
    }
    const Doubles found = values(rotary_embedding(x, tables.cos, tables.sin, {.interleaved = interleaved}));
    EXPECT_LT(distance(found, expected), 1e-6) << interleaved;
  }
}

// The product of a query at position p and a key at position q depends on p - q alone.
TEST_F(RotaryTest, ProductsDependOnTheDistance) {
  constexpr std::int64_t kLength = 40;
  const RotaryTables tables = rotary_tables(8, kLength);
  for (const bool interleaved : {true, false}) {
    const auto everywhere = [&](const Tensor& vector) {
      return rotary_embedding(expand(vector, {kLength, 8}), tables.cos, tables.sin, {.interleaved = interleaved});
    };
    const Tensor query = numbers({1, 8}, 1), key = numbers({1, 8}, 2);
    const Doubles products = values(matmul(everywhere(query), transpose(everywhere(key))));
    const auto product = [&](std::int64_t p, std::int64_t q) {
      return products[static_cast<std::size_t>(p * kLength + q)];
    };
    for (std::int64_t p = 0; p < kLength; ++p) {
      for (std::int64_t q = 0; q < kLength; ++q) {
        EXPECT_NEAR(product(p, q), p > q ? product(p - q, 0) : product(0, q - p), 5e-6) << p << " " << q;
      }
    }
    EXPECT_GT(std::abs(product(3, 0) - product(0, 3)), 1e-3);  // the direction counts
  }
}

TEST_F(RotaryTest, KeepsTheNorm) {
  const Tensor x = numbers({7, 3, 8}, 1);
  const RotaryTables tables = rotary_tables(8, 3);
  const Tensor y = rotary_embedding(x, tables.cos, tables.sin);
  EXPECT_LT(distance(values(sum(square(y), -1)), values(sum(square(x), -1))), 1e-6);
  EXPECT_GT(distance(values(y), values(x)), 0.1);
}

TEST_F(RotaryTest, HalfTypesAreRotatedInF32) {
  const RotaryTables tables = rotary_tables(8, 3);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor x = numbers({7, 3, 8}, 1, dtype), y = rotary_embedding(x, tables.cos, tables.sin);
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_EQ(values(y), values(cast(rotary_embedding(cast(x, DType::f32), tables.cos, tables.sin), dtype)));
  }
}

TEST_F(RotaryTest, RefusesWhatDoesNotFit) {
  EXPECT_ERROR(rotary_tables(5, 3), "rotary_tables: dim is 5, expected an even number above 0");
  EXPECT_ERROR(rotary_tables(0, 3), "rotary_tables: dim is 0, expected an even number above 0");
  EXPECT_ERROR(rotary_tables(4, 0), "rotary_tables: 0 positions, expected at least 1");
  EXPECT_ERROR(rotary_tables(4, 3, 0.5), "rotary_tables: base is 0.5, expected 1 to 1e300");
  EXPECT_ERROR(rotary_tables(4, 3, NAN), "rotary_tables: base is nan, expected 1 to 1e300");
  const RotaryTables tables = rotary_tables(4, 3);
  const Tensor x = numbers({3, 4}, 1);
  EXPECT_ERROR(rotary_embedding(numbers({3, 3}, 1), tables.cos, tables.sin),
               "rotary_embedding: input is [3, 3] f32 on cpu:0, expected floating [.., D] with an even D");
  EXPECT_ERROR(rotary_embedding(cast(x, DType::i64), tables.cos, tables.sin), "expected floating [.., D]");
  EXPECT_ERROR(rotary_embedding(x, x, x),
               "rotary_embedding: cos is [3, 4] f32 on cpu:0 and sin [3, 4] f32 on cpu:0, expected both floating "
               "[.., 2]");
  EXPECT_ERROR(rotary_embedding(x, tables.cos, narrow(tables.sin, 0, 0, 1)), "and sin [1, 2] f32 on host");
  EXPECT_ERROR(rotary_embedding(narrow(x, 0, 0, 1), tables.cos, tables.sin),
               "rotary_embedding: cos is [3, 2] f32 on host, expected one that broadcasts to [1, 2]");
}

}  // namespace
}  // namespace lockstep::testing
