// Internal: ONNX's model file, a protocol buffer: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/scalar.h"

namespace lockstep {

// ONNX's codes of element types.
enum class OnnxType : std::int32_t { f32 = 1, u8 = 2, i64 = 7, boolean = 9, f16 = 10, f64 = 11, bf16 = 16 };
OnnxType onnx_type(DType dtype);

using OnnxAttribute =
    std::variant<std::int64_t, float, std::vector<std::int64_t>, std::string, std::vector<std::string>>;
using OnnxAttributes = std::vector<std::pair<std::string_view, OnnxAttribute>>;

// Names of a node's inputs or outputs; an empty name stands for an omitted input.
using OnnxNames = std::vector<std::string>;

// An extent is a number, or the name of an extent that is known only at run time.
using OnnxShape = std::vector<std::variant<std::int64_t, std::string>>;

class OnnxFile {
 public:
  // Makes the names of the nodes that follow begin with the path of this module.
  void set_module(std::string path) { module_ = std::move(path); }

  // Adds a node, and returns the names of its outputs.
  OnnxNames nodes(std::string_view type, const OnnxNames& inputs, const OnnxAttributes& attributes, int outputs);
  std::string node(std::string_view type, const OnnxNames& inputs, const OnnxAttributes& attributes = {}) {
    return nodes(type, inputs, attributes, 1)[0];
  }
  void initializer(const std::string& name, OnnxType type, std::span<const std::int64_t> shape, std::string_view bytes);
  // Return the names of constants. Equal constants are stored once.
  std::string constant(OnnxType type, std::span<const std::int64_t> shape, std::string_view bytes);
  std::string whole(std::int64_t value);                        // shape []
  std::string wholes(const std::vector<std::int64_t>& values);  // shape [n]
  std::string number(DType dtype, const Scalar& value);         // shape []

  void input(const std::string& name, OnnxType type, const OnnxShape& shape);
  // Makes `value` the output `name` of the graph.
  void output(const std::string& name, const std::string& value, OnnxType type, const OnnxShape& shape);
  void metadata(std::string_view key, std::string_view value) { metadata_.emplace_back(key, value); }

  // Returns the whole file. Throws if its weights have 2 GiB or more, the most that a protocol buffer can have.
  std::string bytes(const std::string& graph_name) const;

 private:
  struct Node {
    std::string name, type;
    OnnxNames inputs, outputs;
    std::vector<std::pair<std::string, OnnxAttribute>> attributes;
  };
  struct Initializer {
    std::string name;
    OnnxType type;
    std::vector<std::int64_t> shape;
    std::string bytes;
  };
  struct ValueInfo {
    std::string name;
    OnnxType type;
    OnnxShape shape;
  };
  std::string fresh(std::string name);
  static std::string value_info(const ValueInfo& value);

  std::string module_;
  std::vector<Node> nodes_;
  std::vector<Initializer> initializers_, constants_;
  std::vector<ValueInfo> inputs_, outputs_;
  std::vector<std::pair<std::string, std::string>> metadata_;
  std::set<std::string> names_;
};

}  // namespace lockstep
