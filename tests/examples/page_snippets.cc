// The C++ of docs/architecture.md, docs/automatic-parallelism.md, and docs/distributed.md, compiled and run. Tests
// compare the pages with this file.
#include <fmt/core.h>
#include <lockstep/lockstep.h>

using namespace lockstep;

namespace {

void start_ranks() {
  // clang-format off
  spawn([](int rank) {
    auto group = init_process_group();
    std::vector<float> x{1, 2, 3};
    group->all_reduce({x.data(), x.size(), DType::f32}, ReduceOp::sum).wait();
    fmt::print("rank {}: {}\n", rank, x[0]);
    destroy_process_group(group);
  }, {.nprocs = 4});
  // clang-format on
}

void two_devices_at_once() {
  Runtime runtime({.devices = 2});
  Device first = runtime.devices()[0], second = runtime.devices()[1];
  Tensor x0 = rand({256, 256}, {.device = first, .seed = 0});
  Tensor x1 = rand({256, 256}, {.device = second, .seed = 0});  // the same numbers
  std::vector<Tensor> y0, y1;
  for (int i = 0; i < 50; ++i) {
    y0.push_back(matmul(x0, x0));
    y1.push_back(matmul(x1, x1));
  }
  runtime.synchronize();
  check(y0.back().to_vector<float>() == y1.back().to_vector<float>(), "two devices computed different products");
}

void copies(const Tensor& x) {
  std::vector<Tensor> y, copies;
  for (int i = 0; i < 50; ++i) y.push_back(matmul(x, x));
  for (const Tensor& t : y) copies.push_back(t.to(kHost, {.non_blocking = true}));
  for (int i = 0; i < 50; ++i) copies.push_back(matmul(x, x).to(kHost, {.non_blocking = true}));
  const auto expected = y[0].to_vector<float>();
  for (const Tensor& copy : copies) check(copy.to_vector<float>() == expected, "a copy differs from the product");
}

void small_operations(const Tensor& x) {
  auto step = [&](const Tensor& y) { return matmul(y, x); };
  std::vector<Tensor> chains(4, x);
  {
    InterOpParallelGuard parallel;
    for (Tensor& y : chains) y = step(y);
  }
  const auto expected = matmul(x, x).to_vector<float>();
  for (const Tensor& y : chains) check(y.to_vector<float>() == expected, "a chain beside others has other bits");
}

// Returns the losses of a few steps.
std::vector<float> train(const std::vector<Device>& devices) {
  constexpr int V = 4;
  Linear net({.in_features = 5, .out_features = 2});
  net.initialize(Xavier{}, devices);
  Sgd optimizer(net.parameters(), {.lr = 0.5});
  const std::vector<Tensor> batch{rand({8, 5}, {.seed = 0}),
                                  Tensor::from(std::vector<std::int64_t>{0, 1, 0, 1, 0, 1, 0, 1}, {8})};
  std::vector<float> losses;
  for (int i = 0; i < 3; ++i) {
    Tensor x = split_and_load(batch[0], devices, {.shards = V}),
           labels = split_and_load(batch[1], devices, {.shards = V});
    cross_entropy(net(x), labels).backward();
    optimizer.step();
    losses.push_back(cross_entropy(net(x), labels).item());
  }
  return losses;
}

}  // namespace

int main() {
  start_ranks();
  std::fflush(stdout);
  two_devices_at_once();
  Runtime runtime({.devices = 2});
  const Tensor x = rand({64, 64}, {.device = runtime.devices()[0]});
  copies(x);
  small_operations(x);
  const std::vector<float> one = train({runtime.devices()[0]}), two = train(runtime.devices());
  check(one == two && two.back() < two.front(), "training differs on two devices, or does not learn");
  fmt::print("all snippets ran\n");
}
