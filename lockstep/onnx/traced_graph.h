// Internal: the operations of a model for a batch of any size, from passes of two sizes. What differs between the
// passes follows from the batch, or the model cannot be exported.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/onnx/pass_record.h"

namespace lockstep {

// A number that may follow from the batch size: `value` in the first pass, and `second`, if it differs, in the second.
// It is `factor` times the batch size or, if `factor` is 0, fixed. `odd`: it follows in another way.
struct Extent {
  std::int64_t value = 0;
  std::int64_t factor = 0;
  bool odd = false;
  std::int64_t second = 0;

  bool fixed() const { return factor == 0 && !odd; }
  bool operator==(const Extent&) const = default;
};

struct GraphValue {
  ValueSource source = ValueSource::result;
  std::vector<Extent> shape;
  DType dtype = DType::f32;
  std::string name;   // of a weight
  std::string bytes;  // of a constant: its elements, or one element that fills a shape which follows from the batch
};

struct GraphOperation {
  std::string name, kind, module;
  std::vector<int> inputs, outputs;  // indices of values; -1: omitted
  std::vector<std::pair<std::string_view, std::variant<Extent, Scalar, std::vector<Extent>>>> attributes;

  std::string where() const;  // for messages

  // Throw if the operation has no such attribute; whole() and numbers() also if it follows from the batch.
  std::int64_t whole(std::string_view attribute) const;
  double real(std::string_view attribute) const;
  const Scalar& scalar(std::string_view attribute) const;
  std::vector<std::int64_t> numbers(std::string_view attribute) const;
  const Extent& extent(std::string_view attribute) const;
  bool has(std::string_view attribute) const;

 private:
  const std::variant<Extent, Scalar, std::vector<Extent>>& find(std::string_view attribute) const;
};

struct TracedGraph {
  std::vector<GraphValue> values;
  std::vector<GraphOperation> operations;  // those that the outputs need, in order
  std::vector<int> inputs, outputs;
};

// A pass, and the indices of its outputs. If both passes have the same batch size, no extent may differ.
struct TracedPass {
  const PassRecord& record;
  std::vector<int> outputs;
  std::int64_t batch;
};

// Throws an error that names the operation and its module if the passes differ otherwise than by the batch.
TracedGraph graph_of_passes(const TracedPass& first, const TracedPass& second);

}  // namespace lockstep
