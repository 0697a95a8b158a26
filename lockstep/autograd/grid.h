// Evenly spaced numbers, and grids of coordinates.
//
//   const auto grid = meshgrid({linspace(-1, 1, height), linspace(-1, 1, width)});  // each [height, width]
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

// `steps` numbers from start to end, with both; a single one is start: [steps]. Computed in f64, then rounded: toward 0
// for i64 and u8, through f32 for bf16 and f16.
Tensor linspace(double start, double end, std::int64_t steps, const TensorOptions& options = {});

// ij: axis i of each grid belongs to vector i. xy: the first two axes are swapped, as for images.
enum class GridIndexing : std::uint8_t { ij, xy };
// For vectors of lengths a, b, ..: as many tensors [a, b, ..], each with its vector's elements along that vector's
// axis. A tensor without axes counts as a vector of one element.
std::vector<Tensor> meshgrid(std::span<const Tensor> tensors, GridIndexing indexing = GridIndexing::ij);
std::vector<Tensor> meshgrid(std::initializer_list<Tensor> tensors, GridIndexing indexing = GridIndexing::ij);

}  // namespace lockstep
