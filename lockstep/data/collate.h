// Batches of examples of different lengths: a function that makes a batch from its examples.
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

// Makes the parts of a batch, host tensors whose axis 0 has the samples, from one or more examples. A pure function,
// safe to call from several threads at once.
using Collate = std::function<Example(const std::vector<Example>& examples)>;

// Stacks each part of the examples along a new axis 0, as Dataset::batch() does. Throws unless each part has one shape
// and one type, and no tensor requires gradients, which a batch, as a copy, would lose.
Example default_collate(const std::vector<Example>& examples);

// Part `part` of each example.
std::vector<Tensor> part_of_each(const std::vector<Example>& examples, std::size_t part);

// Host tensors of one shape and type that do not require gradients, stacked along a new axis 0.
Tensor stack_parts(std::span<const Tensor> tensors);

struct PadSequenceOptions {
  // Of the elements after the end of a sequence.
  double value = 0;
  // The length of all sequences; longer ones are an error. 0: the longest one's.
  std::int64_t length = 0;
};

// [n, longest, ...] from n host tensors [length, ...], filled up at the end: torch.nn.utils.rnn.pad_sequence with
// batch_first. Throws unless they differ in their lengths only, and if one requires gradients.
Tensor pad_sequence(std::span<const Tensor> sequences, const PadSequenceOptions& options = {});

}  // namespace lockstep
