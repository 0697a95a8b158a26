// The section "Automatic Parallelism" of Dive into Deep Learning: products on two devices at once, with copies to the
// host beside them. The program schedules nothing.
//
//   automatic_parallelism --num-devices 2
//   automatic_parallelism --serial          one thing after the other, for comparison
#include <fmt/core.h>
#include <lockstep/autograd/functions.h>

#include <chrono>
#include <cmath>

#include "device_options.h"

using namespace lockstep;

namespace {

struct Options : DeviceOptions {
  std::int64_t size = 512;
  int count = 50;
  int copies = 0;
  bool serial = false;
};

void add_options(CLI::App& app, Options& o) {
  o.add_to(app);
  app.add_option("--size", o.size, "Rows and columns of a matrix")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 15))
      ->capture_default_str();
  app.add_option("--count", o.count, "Products of each device")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  app.add_option("--copies", o.copies, "Copies of each result [as many as take as long as its product]")
      ->check(CLI::Range(1, 1 << 20));
  app.add_flag("--serial", o.serial, "Run each operation at once, on the thread that describes it");
}

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

// Describes the work and waits for its end.
template <typename Work>
double seconds(Runtime& runtime, Work work) {
  const auto begin = std::chrono::steady_clock::now();
  const auto results = work();
  runtime.synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

template <typename Work>
double measure(const std::string& name, Runtime& runtime, Work work) {
  const double time = seconds(runtime, work);
  fmt::print("{}: {:.4f} sec\n", name, time);
  return time;
}

// How often to copy each of y so that it takes about as long as making it.
int copies_like(double wanted, Runtime& runtime, const std::vector<Tensor>& y) {
  int times = 8;
  // The first copy also finds new memory, so that the time is not quite proportional.
  for (int attempt = 0; attempt < 3; ++attempt) {
    const double time = seconds(runtime, [&] { return copy_to_host(y, times); });
    times = std::max(1, static_cast<int>(std::lround(times * wanted / time)));
  }
  return times;
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app{"Shows that devices compute at the same time, and that copies overlap with computation."};
  Options o;
  add_options(app, o);
  if (const auto status = parse(app, argc, argv)) return *status;

  RuntimeOptions runtime_options = o.runtime();
  runtime_options.serial = o.serial;
  Runtime runtime(runtime_options);
  const std::vector<Device>& devices = runtime.devices();

  std::vector<Tensor> x;
  for (Device device : devices) {
    x.push_back(rand({o.size, o.size}, {.device = device}));
    copy_to_host(run(x.back(), o.count), 1);  // warms up
  }
  runtime.synchronize();

  for (std::size_t d = 0; d < x.size(); ++d) {
    measure(fmt::format("run on {}", devices[d].name()), runtime, [&] { return run(x[d], o.count); });
  }
  measure("run on all", runtime, [&] {
    std::vector<std::vector<Tensor>> y;
    for (const Tensor& t : x) y.push_back(run(t, o.count));
    return y;
  });

  const std::vector<Tensor> y = run(x[0], o.count);
  const double once = seconds(runtime, [&] { return run(x[0], o.count); });
  if (o.copies == 0) o.copies = copies_like(once, runtime, y);
  const double run_alone =
      measure(fmt::format("run on {}", devices[0].name()), runtime, [&] { return run(x[0], o.count); });
  const double copy_alone =
      measure(fmt::format("copy to the host, {} times", o.copies), runtime, [&] { return copy_to_host(y, o.copies); });
  std::vector<Tensor> copies;
  const double together = measure("run and copy", runtime, [&] {
    const std::vector<Tensor> results = run(x[0], o.count);
    return copies = copy_to_host(results, o.copies);
  });
  fmt::print("hidden: {:.2f} of the shorter part\n",
             (run_alone + copy_alone - together) / std::min(run_alone, copy_alone));

  const std::vector<float> expected = matmul(x[0], x[0]).to_vector<float>();
  for (const Tensor& copy : copies) check(copy.to_vector<float>() == expected, "a copy differs from its product");
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "automatic_parallelism: {}\n", error.what());
  return 1;
}
