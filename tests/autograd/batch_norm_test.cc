// Synchronized batch norm: shards that share their statistics are one batch.
#include <gtest/gtest.h>

#include "tests/autograd/gradient_testing.h"
#include "tests/expect_error.h"

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

std::vector<double> rows(const std::vector<double>& v, std::int64_t first, std::int64_t count) {
  auto size = static_cast<std::ptrdiff_t>(v.size()) / kWhole[0];
  return {v.begin() + first * size, v.begin() + (first + count) * size};
}

Pass whole(const Data& data, Device device, DType dtype) {
  Tensor x = make_tensor(data.x, kWhole, device, dtype).set_requires_grad(true);
  Tensor residual = make_tensor(data.residual, kWhole, device, dtype).set_requires_grad(true);
  Tensor gamma = make_tensor(data.gamma, {4}, device, dtype).set_requires_grad(true);
  Tensor beta = make_tensor(data.beta, {4}, device, dtype).set_requires_grad(true);
  Tensor y = batch_norm_train(x, gamma, beta, residual, {.relu = true}, nullptr);
  Tensor dy = make_tensor(data.dy, kWhole, device, dtype);
  backward({&y, 1}, {&dy, 1});
  return {values(y), values(x.grad()), values(residual.grad()), values(gamma.grad()), values(beta.grad())};
}

// Shard i on devices[i % their number]; backward() starts from the first `roots` shards alone.
Pass synchronized(const Data& data, const std::vector<Device>& devices, DType dtype, std::size_t roots = 3) {
  std::vector<Tensor> xs, residuals, gammas, betas, gamma_of, beta_of, seeds;
  for (Device device : devices) {
    gammas.push_back(make_tensor(data.gamma, {4}, device, dtype).set_requires_grad(true));
    betas.push_back(make_tensor(data.beta, {4}, device, dtype).set_requires_grad(true));
  }
  std::int64_t first = 0;
  for (std::size_t i = 0; i < kCounts.size(); ++i) {
    Shape shape = kWhole;
    shape[0] = kCounts[i];
    Device device = devices[i % devices.size()];
    auto part = [&](const std::vector<double>& v) {
      return make_tensor(rows(v, first, kCounts[i]), shape, device, dtype).with_shard(static_cast<int>(i));
    };
    xs.push_back(part(data.x).set_requires_grad(true));
    residuals.push_back(part(data.residual).set_requires_grad(true));
    seeds.push_back(part(data.dy));
    gamma_of.push_back(gammas[i % devices.size()]);
    beta_of.push_back(betas[i % devices.size()]);
    first += kCounts[i];
  }
  std::vector<Tensor> ys = batch_norm_synchronized(xs, gamma_of, beta_of, residuals, {.relu = true}, nullptr);
  backward(std::span(ys).first(roots), std::span(seeds).first(roots));
  Pass pass;
  auto append = [](std::vector<double>& to, const Tensor& t, std::int64_t n) {
    std::vector<double> more = t.defined() ? values(t) : std::vector<double>(static_cast<std::size_t>(n), 0);
    to.insert(to.end(), more.begin(), more.end());
  };
  auto add = [](std::vector<double>& to, const Tensor& t) {
    to.resize(4);
    if (!t.defined()) return;
    std::vector<double> more = values(t);
    for (std::size_t c = 0; c < 4; ++c) to[c] += more[c];
  };
  for (std::size_t i = 0; i < xs.size(); ++i) {
    append(pass.y, ys[i], 0);
    append(pass.dx, xs[i].grad(), xs[i].numel());
    append(pass.dresidual, residuals[i].grad(), xs[i].numel());
  }
  for (std::size_t d = 0; d < devices.size(); ++d) {
    add(pass.dgamma, gammas[d].grad());
    add(pass.dbeta, betas[d].grad());
  }
  return pass;
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

// A shard whose output nobody uses still moved the statistics of the others.
TEST(SynchronizedBatchNorm, ShardsWithoutInfluenceOfTheirOwnGetGradients) {
  Runtime reference({.cpu_devices = 2, .cores_per_device = 1, .reference_backend = true});
  Data data;
  Pass actual = synchronized(data, reference.devices(), DType::f64, 1);
  for (std::size_t i = rows(data.dy, 0, kCounts[0]).size(); i < data.dy.size(); ++i) data.dy[i] = 0;
  expect_close(actual, whole(data, reference.devices()[0], DType::f64), 1e-12);
}

TEST(SynchronizedBatchNorm, BitsDoNotDependOnDevices) {
  Data data;
  Runtime runtime({.cpu_devices = 3, .cores_per_device = 1, .threads_per_shard = 1});
  const auto& devices = runtime.devices();
  Pass one = synchronized(data, {devices[0]}, DType::f32), three = synchronized(data, devices, DType::f32);
  EXPECT_EQ(one.y, three.y);
  EXPECT_EQ(one.dx, three.dx);
}

TEST(SynchronizedBatchNorm, EachShardComesOnce) {
  Runtime runtime;
  Tensor x = make_tensor(Data().x, kWhole, runtime.devices()[0]),
         c = make_tensor({1, 1, 1, 1}, {4}, x.device());
  std::vector<Tensor> xs{x.with_shard(1), x.with_shard(1)}, cs{c, c};
  EXPECT_ERROR(batch_norm_synchronized(xs, cs, cs, {}, {}, nullptr), "batch_norm: two inputs are shard 1");
}

}  // namespace
}  // namespace lockstep::testing
