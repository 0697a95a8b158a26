// Shared by the tests of kernels: tensors that hold their own memory, random inputs, and a fixture that runs
// a kernel of a back end next to the reference kernel in f64 on the same values.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/backend/backend.h"

namespace lockstep::testing {

// Without a shape it is an absent tensor, the View of which is false.
class TestTensor {
 public:
  TestTensor() = default;
  // Every byte is 0xff: NaN, or -1 as i64, so that an element which no kernel wrote is seen.
  explicit TestTensor(const Shape& shape, DType dtype = DType::f32, Layout layout = Layout::plain);
  // `values` in plain order.
  TestTensor(const Shape& shape, DType dtype, Layout layout, std::span<const double> values);
  TestTensor(const Shape& shape, DType dtype, std::initializer_list<double> values);

  View view() const;
  explicit operator bool() const { return !bytes_.empty(); }
  const Shape& shape() const { return view_.shape; }
  DType dtype() const { return view_.dtype; }
  Layout layout() const { return view_.layout; }

  // In plain order.
  std::vector<double> values() const;
  // A copy of other dtype and layout, made by the reference back end. Absent stays absent.
  TestTensor to(DType dtype, Layout layout) const;
  // The oracle's copy: f64 if floating, plain.
  TestTensor oracle() const;
  bool same_bits(const TestTensor& other) const { return bytes_ == other.bytes_; }

 private:
  View view_;
  // Written through views of constant tensors: a View cannot be constant.
  mutable std::vector<std::byte> bytes_;
};

// Random numbers for a test; the same in every run.
class Random {
 public:
  explicit Random(std::uint64_t seed) : key_(random_key(seed, {})) {}
  double normal() { return random_normal(key_, next_++); }
  double uniform(double low, double high) { return low + (high - low) * random_uniform(key_, next_++); }
  // In [low, high].
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_below(key_, next_++, high - low + 1));
  }
  template <typename T>
  T pick(std::initializer_list<T> items) {
    return items.begin()[integer(0, static_cast<std::int64_t>(items.size()) - 1)];
  }
  template <typename T>
  T pick(const std::vector<T>& items) {
    return items[integer(0, static_cast<std::int64_t>(items.size()) - 1)];
  }
  // Standard normal numbers.
  TestTensor tensor(const Shape& shape, DType dtype = DType::f64, Layout layout = Layout::plain);
  // In [low, high).
  TestTensor tensor_between(double low, double high, const Shape& shape, DType dtype = DType::f64,
                            Layout layout = Layout::plain);
  TestTensor integers(std::int64_t low, std::int64_t high, const Shape& shape);

 private:
  RandomKey key_;
  std::uint64_t next_ = 0;
};

std::vector<Layout> layouts_that_fit(const Shape& shape);
Backend& reference_backend();

// ‖actual − expected‖ ≤ tolerance · ‖expected‖, over the whole tensor, with a floor for tensors of zeros.
void expect_close(const TestTensor& actual, const TestTensor& expected, double tolerance);

// One back end, one dtype, one number of threads. `make` gives null where the device is not there: the test is skipped.
struct KernelCase {
  std::string name;
  std::unique_ptr<Backend> (*make)();
  DType dtype;
  int threads;
};
void PrintTo(const KernelCase& c, std::ostream* os);
std::vector<KernelCase> kernel_cases(std::initializer_list<DType> dtypes = {DType::f32, DType::bf16, DType::f16,
                                                                            DType::f64});
std::string kernel_case_name(const ::testing::TestParamInfo<KernelCase>& info);

using Tensors = std::vector<TestTensor>;
using Views = std::span<const View>;
// Runs one kernel, or a few in a row, reading `in` and writing `out`.
using Kernel = std::function<void(Backend&, KernelContext&, Views in, Views out)>;

class KernelTest : public ::testing::TestWithParam<KernelCase> {
 protected:
  void SetUp() override {
    if (!backend_) GTEST_SKIP() << "no device for " << GetParam().name;
  }

  DType dtype() const { return GetParam().dtype; }
  // The dtype of weights, statistics and losses that go with dtype().
  DType master_dtype() const { return dtype() == DType::f64 ? DType::f64 : DType::f32; }
  double tolerance() const;

  // Normal numbers of dtype(); poisoned memory for outputs.
  TestTensor input(const Shape& shape, Layout layout = Layout::plain);
  TestTensor output(const Shape& shape, Layout layout = Layout::plain) { return TestTensor(shape, dtype(), layout); }
  // Normal numbers of master_dtype() that dtype() can hold.
  TestTensor master(const Shape& shape);
  TestTensor master_output(const Shape& shape) { return TestTensor(shape, master_dtype()); }

  // Runs `kernel` on the back end under test twice, which must give the same bits and leave its inputs alone,
  // and on the reference in f64. Outputs must be close.
  void expect_matches_reference(const Tensors& inputs, const Tensors& outputs, const Kernel& kernel);
  // The same against the reference in the same dtypes and layouts, bit by bit.
  void expect_same_bits_as_reference(const Tensors& inputs, const Tensors& outputs, const Kernel& kernel);
  // Writing outputs[out] over inputs[in] must give the bits that writing it elsewhere gives.
  void expect_in_place(const Tensors& inputs, const Tensors& outputs, std::size_t in, std::size_t out,
                       const Kernel& kernel);
  // The outputs of one run on the back end under test.
  Tensors run(const Tensors& inputs, Tensors outputs, const Kernel& kernel);

  std::unique_ptr<Backend> backend_ = GetParam().make();
  KernelContext context_{GetParam().threads};
  Random random_{42};
};

}  // namespace lockstep::testing
