// Synchronized batch norm: shards that share their statistics are one batch.
#include <gtest/gtest.h>

#include "tests/autograd/gradient_testing.h"
#include "tests/expect_error.h"

#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/batch_norm.h"

namespace lockstep::testing {
namespace {

const std::vector<std::int64_t> kCounts{3, 1, 2};
const Shape kWhole{6, 4, 3, 2};

// Everything that one pass over the batch gives, in the order of its samples.
struct Pass {
  std::vector<double> y, dx, dresidual, dgamma, dbeta;
};

struct Data {
  Random random{3};
  std::vector<double> x = random.uniforms(kWhole.numel()), residual = random.uniforms(kWhole.numel()),
                      gamma = random.uniforms(4, 0.5, 2), beta = random.uniforms(4),
                      dy = random.uniforms(kWhole.numel());
};

Pass whole(const Data& data, Device device, DType dtype) {
  Tensor x = as_leaf(make_tensor(data.x, kWhole, device, dtype));
  Tensor residual = as_leaf(make_tensor(data.residual, kWhole, device, dtype));
  Tensor gamma = as_leaf(make_tensor(data.gamma, {4}, device, dtype));
  Tensor beta = as_leaf(make_tensor(data.beta, {4}, device, dtype));
  Tensor y = batch_norm_train(x, gamma, beta, residual, {.relu = true}, nullptr);
  Tensor dy = make_tensor(data.dy, kWhole, device, dtype);
  backward({&y, 1}, {&dy, 1});
  return {values(y), values(x.grad()), values(residual.grad()), values(gamma.grad()), values(beta.grad())};
}

// Shard i on devices[i % their number].
Pass synchronized(const Data& data, const std::vector<Device>& devices, DType dtype) {
  std::vector<Slot> slots;
  for (int i = 0; i < std::ssize(kCounts); ++i)
    slots.push_back({i, devices[static_cast<std::size_t>(i) % devices.size()]});
  const auto at = std::make_shared<Placement>(kCounts, slots);
  const auto cut = [&](const std::vector<double>& v) {
    return scatter(make_tensor(v, kWhole, devices[0], dtype), at).detach();
  };
  const auto replicated = [&](const std::vector<double>& v) {
    std::vector<Array> parts;
    for (Device device : devices) parts.push_back(make_tensor(v, {4}, device, dtype));
    return replicated_tensor(std::move(parts), at);
  };
  Tensor x = cut(data.x), residual = cut(data.residual), gamma = replicated(data.gamma), beta = replicated(data.beta);
  for (Tensor* t : {&x, &residual, &gamma, &beta}) t->set_requires_grad(true);
  const Tensor y = batch_norm_synchronized(x, gamma, beta, residual, {.relu = true}, nullptr), dy = cut(data.dy);
  backward({&y, 1}, {&dy, 1});
  return {values(y), values(x.grad()), values(residual.grad()), values(gamma.grad()), values(beta.grad())};
}

void expect_close(const Pass& a, const Pass& b, double tolerance) {
  EXPECT_LT(distance(a.y, b.y), tolerance);
  EXPECT_LT(distance(a.dx, b.dx), tolerance);
  EXPECT_LT(distance(a.dresidual, b.dresidual), tolerance);
  EXPECT_LT(distance(a.dgamma, b.dgamma), tolerance);
  EXPECT_LT(distance(a.dbeta, b.dbeta), tolerance);
}

TEST(SynchronizedBatchNorm, EqualsOneBatch) {
  Runtime reference({.cpu_devices = 3, .cores_per_device = 1, .reference_backend = true});
  Runtime cpu({.cpu_devices = 3, .cores_per_device = 1});
  Data data;
  Pass expected = whole(data, reference.devices()[0], DType::f64);
  expect_close(synchronized(data, reference.devices(), DType::f64), expected, 1e-12);
  expect_close(synchronized(data, cpu.devices(), DType::f32), expected, 1e-5);
}

TEST(SynchronizedBatchNorm, BitsDoNotDependOnDevices) {
  Data data;
  Runtime runtime({.cpu_devices = 3, .cores_per_device = 1, .threads_per_shard = 1});
  const auto& devices = runtime.devices();
  Pass one = synchronized(data, {devices[0]}, DType::f32), three = synchronized(data, devices, DType::f32);
  EXPECT_EQ(one.y, three.y);
  EXPECT_EQ(one.dx, three.dx);
  EXPECT_EQ(one.dgamma, three.dgamma);
}

}  // namespace
}  // namespace lockstep::testing
