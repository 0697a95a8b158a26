// Functions that make a batch from examples, also from examples of different lengths.
//
//   // {words [length], label []} -> {words [n, longest], label [n]}
//   DataLoader loader(texts, {.batch_size = 32, .collate = [](const std::vector<Example>& examples) -> Example {
//     return {pad_sequence(part_of_each(examples, 0), {.value = kPadding}), stack_parts(part_of_each(examples, 1))};
//   }});
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lockstep/data/dataset.h"

namespace LOCKSTEP_API lockstep {

// Makes a batch from one or more examples: its parts are host tensors whose axis 0 has the samples. Must be a pure
// function that several threads may call at once.
using Collate = std::function<Example(const std::vector<Example>& examples)>;

// Stacks each part of the examples along a new axis 0, as Dataset::batch() does. Throws unless the examples agree in
// the shape and type of each part, and if a tensor requires gradients: a batch is a copy, which would lose its history.
Example default_collate(const std::vector<Example>& examples);

// Part `part` of each example.
std::vector<Tensor> part_of_each(const std::vector<Example>& examples, std::size_t part);

// Stacks host tensors along a new axis 0. Throws unless they agree in shape and type, and if one requires gradients.
Tensor stack_parts(std::span<const Tensor> tensors);

struct PadSequenceOptions {
  // Value of the elements after the end of a sequence.
  double value = 0;
  // Length that all sequences get; a longer sequence is an error. 0: the length of the longest sequence.
  std::int64_t length = 0;
};

// Returns [n, longest, ...] from n host tensors [length, ...], padded at the end: torch.nn.utils.rnn.pad_sequence with
// batch_first. Throws unless they differ in their lengths only, and if one requires gradients.
Tensor pad_sequence(std::span<const Tensor> sequences, const PadSequenceOptions& options = {});

}  // namespace lockstep
