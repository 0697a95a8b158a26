#include "tests/backend/kernel_testing.h"

#include <algorithm>
#include <cmath>
#include <ostream>

namespace lockstep::testing {

TestTensor::TestTensor(const Shape& shape, DType dtype, Layout layout)
    : view_{nullptr, dtype, layout, shape}, bytes_(std::max<std::size_t>(view_.bytes(), 1), std::byte{0xff}) {}

TestTensor::TestTensor(const Shape& shape, DType dtype, Layout layout, std::span<const double> values)
    : TestTensor(shape, dtype, layout) {
  check(static_cast<std::int64_t>(values.size()) == shape.numel(), "test tensor: {} values for shape {}", values.size(),
        shape.str());
  View source{const_cast<double*>(values.data()), DType::f64, Layout::plain, shape};
  KernelContext context;
  reference_backend().run(context, kernels::Copy{source, view()});
}

TestTensor::TestTensor(const Shape& shape, DType dtype, std::initializer_list<double> values)
    : TestTensor(shape, dtype, Layout::plain, std::span(values.begin(), values.size())) {}

View TestTensor::view() const {
  View view = view_;
  view.data = bytes_.empty() ? nullptr : bytes_.data();
  return view;
}

std::vector<double> TestTensor::values() const {
  std::vector<double> values(view_.numel());
  KernelContext context;
  reference_backend().run(context, kernels::Copy{view(), {values.data(), DType::f64, Layout::plain, shape()}});
  return values;
}

TestTensor TestTensor::to(DType dtype, Layout layout) const {
  if (!*this) return {};
  TestTensor copy(shape(), dtype, layout);
  KernelContext context;
  reference_backend().run(context, kernels::Copy{view(), copy.view()});
  return copy;
}

TestTensor TestTensor::oracle() const { return to(is_floating(dtype()) ? DType::f64 : dtype(), Layout::plain); }

TestTensor Random::tensor(const Shape& shape, DType dtype, Layout layout) {
  std::vector<double> values(shape.numel());
  for (double& value : values) value = normal();
  return TestTensor(shape, dtype, layout, values);
}

TestTensor Random::tensor_between(double low, double high, const Shape& shape, DType dtype, Layout layout) {
  std::vector<double> values(shape.numel());
  for (double& value : values) value = uniform(low, high);
  return TestTensor(shape, dtype, layout, values);
}

TestTensor Random::integers(std::int64_t low, std::int64_t high, const Shape& shape) {
  std::vector<double> values(shape.numel());
  for (double& value : values) value = static_cast<double>(integer(low, high));
  return TestTensor(shape, DType::i64, Layout::plain, values);
}

std::vector<Layout> layouts_that_fit(const Shape& shape) {
  std::vector<Layout> layouts;
  for (Layout layout : {Layout::plain, Layout::channels_last, Layout::blocked16}) {
    if (layout_fits(layout, shape)) layouts.push_back(layout);
  }
  return layouts;
}

Backend& reference_backend() {
  static const std::unique_ptr<Backend> backend = make_reference_backend();
  return *backend;
}

void expect_close(const TestTensor& actual, const TestTensor& expected, double tolerance) {
  ASSERT_EQ(actual.shape(), expected.shape());
  std::vector<double> a = actual.values(), b = expected.values();
  double error = 0, norm = 0, worst = -1;
  std::size_t place = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    double distance = a[i] == b[i] ? 0 : std::abs(a[i] - b[i]);  // infinities may be equal
    error += distance * distance;
    if (std::isfinite(b[i])) norm += b[i] * b[i];
    if (!(distance <= worst)) worst = distance, place = i;
  }
  // Not `>`, so that NaN fails.
  if (!(std::sqrt(error) <= tolerance * (std::sqrt(norm) + 0.01))) {
    ADD_FAILURE() << "relative error " << std::sqrt(error / norm) << " over shape " << actual.shape().str()
                  << ", the largest at element " << place << ": " << a[place] << ", expected " << b[place];
  }
}

void PrintTo(const KernelCase& c, std::ostream* os) { *os << c.name; }

std::string kernel_case_name(const ::testing::TestParamInfo<KernelCase>& info) { return info.param.name; }

namespace {

Tensors oracles(const Tensors& tensors) {
  Tensors copies;
  for (const TestTensor& tensor : tensors) copies.push_back(tensor.oracle());
  return copies;
}

std::vector<View> views(const Tensors& tensors) {
  std::vector<View> views;
  for (const TestTensor& tensor : tensors) views.push_back(tensor.view());
  return views;
}

}  // namespace

double KernelTest::tolerance() const {
  switch (dtype()) {
    case DType::f64: return 1e-12;
    case DType::f32: return 1e-4;
    case DType::f16: return 2.5e-3;  // 5 roundings' worth, as for bf16
    default: return 2e-2;
  }
}

TestTensor KernelTest::input(const Shape& shape, Layout layout) { return random_.tensor(shape, dtype(), layout); }

TestTensor KernelTest::master(const Shape& shape) { return input(shape).to(master_dtype(), Layout::plain); }

Tensors KernelTest::run(const Tensors& inputs, Tensors outputs, const Kernel& kernel) {
  kernel(*backend_, context_, views(inputs), views(outputs));
  return outputs;
}

void KernelTest::expect_matches_reference(const Tensors& inputs, const Tensors& outputs, const Kernel& kernel) {
  const Tensors before = inputs;
  Tensors first = run(inputs, outputs, kernel);
  Tensors second = run(inputs, outputs, kernel);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_TRUE(inputs[i].same_bits(before[i])) << "input " << i << " was written";
  }
  Tensors expected = oracles(outputs);
  kernel(reference_backend(), context_, views(oracles(inputs)), views(expected));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    SCOPED_TRACE(::testing::Message() << "output " << i);
    EXPECT_TRUE(first[i].same_bits(second[i])) << "differs from run to run";
    if (outputs[i]) expect_close(first[i], expected[i], tolerance());
  }
}

void KernelTest::expect_same_bits_as_reference(const Tensors& inputs, const Tensors& outputs, const Kernel& kernel) {
  Tensors actual = run(inputs, outputs, kernel);
  Tensors expected = outputs;
  kernel(reference_backend(), context_, views(inputs), views(expected));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    EXPECT_TRUE(actual[i].same_bits(expected[i])) << "output " << i << " of shape " << actual[i].shape().str();
  }
}

void KernelTest::expect_in_place(const Tensors& inputs, const Tensors& outputs, std::size_t in, std::size_t out,
                                 const Kernel& kernel) {
  Tensors apart = run(inputs, outputs, kernel);
  const Tensors together = inputs;
  Tensors others = outputs;
  std::vector<View> out_views = views(others);
  out_views[out] = together[in].view();
  kernel(*backend_, context_, views(together), out_views);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    EXPECT_TRUE((i == out ? together[in] : others[i]).same_bits(apart[i])) << "output " << i;
  }
}

}  // namespace lockstep::testing
