// The section "Automatic Parallelism" of Dive into Deep Learning: products on two devices at once, with copies to the
// host beside them. The program schedules nothing.
//
//   automatic_parallelism --num-devices 2
//   automatic_parallelism --serial          one thing after the other, for comparison
#include <fmt/core.h>
#include <lockstep/autograd/functions.h>
#include <lockstep/runtime/default_runtime.h>

#include <chrono>

#include "device_options.h"

using namespace lockstep;

namespace {

struct Options : DeviceOptions {
  std::int64_t size = 512;
  int count = 50;
  int copies = 20;
  bool serial = false;
};

std::vector<Tensor> run(const Tensor& x, int count) {
  std::vector<Tensor> y;
  for (int i = 0; i < count; ++i) y.push_back(matmul(x, x));
  return y;
}

// Copies each result `times` times, because a CPU copies a matrix much faster than it multiplies two. y[i] is copied
// while y[i + 1] is computed: the engine knows what each copy waits for.
std::vector<Tensor> copy_to_host(const std::vector<Tensor>& y, int times) {
  std::vector<Tensor> copies;
  for (const Tensor& t : y) {
    copies.push_back(t.to(kHost, {.non_blocking = true}));
    for (int i = 1; i < times; ++i) copies.back().copy_from(t, {.non_blocking = true});
  }
  return copies;
}

// Describes the work, waits for its end, and returns the seconds.
template <typename Work>
double measure(const std::string& name, Work work) {
  const auto begin = std::chrono::steady_clock::now();
  const auto results = work();
  synchronize();
  const double time = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  fmt::print("{}: {:.4f} sec\n", name, time);
  return time;
}

void compare(const Options& o) {
  std::vector<Tensor> x;
  for (Device device : devices()) {
    x.push_back(rand({o.size, o.size}, {.device = device}));
    copy_to_host(run(x.back(), o.count), 1);  // warms up
  }
  synchronize();

  for (const Tensor& t : x) {
    measure(fmt::format("run on {}", t.device().name()), [&] { return run(t, o.count); });
  }
  measure("run on all", [&] {
    std::vector<std::vector<Tensor>> y;
    for (const Tensor& t : x) y.push_back(run(t, o.count));
    return y;
  });

  const std::vector<Tensor> y = run(x[0], o.count);
  synchronize();
  const double alone = measure(fmt::format("run on {}", x[0].device().name()), [&] { return run(x[0], o.count); });
  const double copying =
      measure(fmt::format("copy to the host, {} times", o.copies), [&] { return copy_to_host(y, o.copies); });
  std::vector<Tensor> copies;
  const double together = measure("run and copy", [&] { return copies = copy_to_host(run(x[0], o.count), o.copies); });
  fmt::print("hidden: {:.2f} of the shorter part\n", (alone + copying - together) / std::min(alone, copying));

  const std::vector<float> expected = y[0].to_vector<float>();
  for (const Tensor& copy : copies) check(copy.to_vector<float>() == expected, "a copy differs from its product");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Shows that devices compute at the same time, and that copies overlap with computation."};
  Options o;
  o.add_to(app);
  app.add_option("--size", o.size, "Rows and columns of a matrix")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 15))
      ->capture_default_str();
  app.add_option("--count", o.count, "Products of each device")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  app.add_option("--copies", o.copies, "Copies of each result")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  app.add_flag("--serial", o.serial, "Run each operation at once, on the thread that describes it");
  return run_example(app, argc, argv, [&] {
    RuntimeOptions options = o.runtime();
    options.serial = o.serial;
    Runtime runtime(options);
    compare(o);
  });
}
