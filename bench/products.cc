#include "bench/products.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "lockstep/base/random.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/matmul.h"

namespace lockstep::app {
namespace {

// Number of left factors, which products use in turn, so that consecutive products differ.
constexpr int kFactors = 4;

}  // namespace

Array random_matrix(std::int64_t size, std::uint64_t seed) {
  Array t = Array::host({size, size});
  const RandomKey key = random_key(seed, {});
  // Makes a sum of `size` products of two such elements have the same standard deviation as an element.
  const double scale = std::sqrt(12) / std::sqrt(static_cast<double>(size));
  for (std::int64_t i = 0; i < t.numel(); ++i) {
    t.view().as<float>()[i] = static_cast<float>(scale * (random_uniform(key, static_cast<std::uint64_t>(i)) - 0.5));
  }
  return t;
}

namespace {

// The matrices of one device.
struct Matrices {
  std::vector<Array> left;
  Array right;
  std::vector<Array> results, copies;
};

}  // namespace

void add_product_options(CLI::App& app, ProductWork& work, const std::string& count) {
  app.add_option("--size", work.size, "Rows and columns of a matrix [depends on the experiment; with a GPU 4000]")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 15));
  app.add_option("--count", work.count, count)->check(CLI::Range(1, 1'000'000));
  app.add_option("--copies", work.copies, "Copies of each result [as many as take the time of its product]")
      ->check(CLI::Range(1, 1'000'000));
}

Experiment products(const std::vector<Device>& devices, const ProductWork& work, Copies copies) {
  const Shape shape{work.size, work.size};
  auto all = std::make_shared<std::vector<Matrices>>(devices.size());
  Experiment experiment;
  for (std::size_t d = 0; d < devices.size(); ++d) {
    Matrices& m = (*all)[d];
    for (std::uint64_t f = 0; f < kFactors; ++f)
      m.left.push_back(ops::to_device(random_matrix(work.size, f), devices[d]));
    m.right = ops::to_device(random_matrix(work.size, kFactors + d), devices[d]);
    m.results.resize(static_cast<std::size_t>(work.count));
    for (int i = 0; i < work.count && copies != Copies::kNone; ++i) {
      m.copies.push_back(copies == Copies::kToHost ? ops::empty_host(shape, DType::f32, devices[d])
                         : copies == Copies::kToPageableHost
                             ? Array::host(shape)
                             : ops::empty(shape, DType::f32, devices[(d + 1) % devices.size()]));
    }
    experiment.parts.push_back({std::string(devices[d].name()), work.count, [all, d](int i) {
                                  Matrices& m = (*all)[d];
                                  const auto k = static_cast<std::size_t>(i);
                                  m.results[k] = ops::matmul(m.left[k % kFactors], m.right);
                                }});
  }
  if (copies != Copies::kNone) {
    experiment.parts.push_back({"copies", work.count, [all, times = work.copies](int i) {
                                  const auto k = static_cast<std::size_t>(i);
                                  for (int time = 0; time < times; ++time) {
                                    for (Matrices& m : *all)
                                      ops::copy_(m.results[k], m.copies[k], {.non_blocking = true});
                                  }
                                }});
  }
  experiment.results = [all] {
    std::vector<Array> results;
    for (const Matrices& m : *all) {
      const std::vector<Array>& last = m.copies.empty() ? m.results : m.copies;
      results.insert(results.end(), last.begin(), last.end());
    }
    return results;
  };
  return experiment;
}

ProductWork calibrate(const Place& place, ProductWork wanted, std::int64_t cpu_size, Copies copies) {
  // The tutorial's sizes. Products for a fifth of a second would exceed the memory of a GPU.
  constexpr int kGpuSize = 4000, kGpuCount = 50;
  if (wanted.size == 0) wanted.size = place.gpus > 0 ? kGpuSize : cpu_size;
  if (wanted.count == 0 && place.gpus > 0) wanted.count = kGpuCount;
  constexpr int kSample = 16, kAttempts = 5, kRounds = 3;
  constexpr double kPartSeconds = 0.2, kAlike = 1.1;
  const bool settled = wanted.copies > 0 || copies == Copies::kNone;
  Runtime runtime(place.runtime);
  ProductWork work{.size = wanted.size, .copies = settled ? wanted.copies : 4, .count = kSample};
  double product_seconds = 0, least_factor = INFINITY;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const Experiment experiment = products(runtime.devices(place.list), work, copies);
    run_parts(runtime, experiment.parts);  // makes results to copy
    const auto timings = time_in_rounds(kRounds, {[&] { run_parts(runtime, {experiment.parts.front()}); },
                                                  [&] { run_parts(runtime, {experiment.parts.back()}); }});
    const double product = median(timings[0].rounds), copy = median(timings[1].rounds);
    const double factor = std::max(product / copy, copy / product);
    if (factor < least_factor) {
      least_factor = factor;
      wanted.copies = work.copies;
      product_seconds = product / kSample;
    }
    if (settled || factor < kAlike) break;
    work.copies = std::max(1, static_cast<int>(std::lround(work.copies * product / copy)));
  }
  if (wanted.count == 0) wanted.count = std::max(kSample, static_cast<int>(kPartSeconds / product_seconds));
  return wanted;
}

std::string title_of(const ProductWork& work) {
  return fmt::format("on each {} of {} x {}", count_of(work.count, "product"), work.size, work.size);
}

}  // namespace lockstep::app
