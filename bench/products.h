// Matrix products on devices, with copies of their results, to show that devices compute and copy at the same time.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <string>

#include "bench/experiment.h"
#include "lockstep/tensor/array.h"

namespace lockstep::app {

// `count` products of [size, size] matrices on each device. On a CPU, copying a result takes a small part of a
// product's time, so hiding one copy would prove nothing: each result is copied `copies` times.
struct ProductWork {
  std::int64_t size = 0;
  int copies = 0;
  int count = 0;
};

// Returns a matrix in host memory, the same in every run. It is scaled so that elements of a product of two such
// matrices are about as large.
Array random_matrix(std::int64_t size, std::uint64_t seed);

// Adds --size, --copies, and --count. `count` says what --count counts, and its default.
void add_product_options(CLI::App& app, ProductWork& work, const std::string& count);

// Makes one part per device. If `copies` has a target, y[i] is copied while y[i + 1] is computed.
enum class Copies { kNone, kToHost, kToPageableHost, kToNextDevice };
Experiment products(const std::vector<Device>& devices, const ProductWork& work, Copies copies);

// Replaces zeros in `wanted`: the size (`cpu_size` without a GPU), the number of copies so that they take as long as
// one device's products, and the count so that a part takes about a fifth of a second.
ProductWork calibrate(const Place& place, ProductWork wanted, std::int64_t cpu_size, Copies copies);

// Returns `on each 16 products of 1024 x 1024`.
std::string title_of(const ProductWork& work);

}  // namespace lockstep::app
