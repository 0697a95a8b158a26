// What shows that devices compute at once and copy meanwhile: products of matrices on devices, and copies of their results.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>

#include "bench_experiment.h"
#include "lockstep/tensor/array.h"

namespace lockstep::app {

// `count` products of [size, size] matrices on each device. A copy by a CPU takes a small part of a product's time, so that
// a single one would be hidden without proving anything: each result is copied `copies` times.
struct ProductWork {
  std::int64_t size = 0;
  int copies = 0;
  int count = 0;
};

// In host memory, the same in every run; so scaled that a product of two has elements of the same size.
Array random_matrix(std::int64_t size, std::uint64_t seed);

// --size, --copies, --count
void add_product_options(CLI::App& app, ProductWork& work);

// A part for each device. y[i] is copied while y[i + 1] is computed, if `copies` says where to.
enum class Copies { kNone, kToHost, kToPageableHost, kToNextDevice };
Experiment products(const std::vector<Device>& devices, const ProductWork& work, Copies copies);

// Chooses what of `wanted` is 0: the size (`cpu_size` where no GPU takes part), the copies so that they take as long as one
// device's products, the count so that a part takes about a fifth of a second.
ProductWork calibrate(const Place& place, ProductWork wanted, std::int64_t cpu_size, Copies copies);

// `on each 16 products of 1024 x 1024`
std::string title_of(const ProductWork& work);

}  // namespace lockstep::app
