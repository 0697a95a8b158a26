#include "lockstep/onnx/onnx_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <protozero/pbf_writer.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/version.h"

namespace lockstep {
namespace {

// Versions of the file format and of the set of operators.
constexpr std::int64_t kIrVersion = 8, kOpset = 17;

using protozero::pbf_writer;

std::string tensor_message(const std::string& name, OnnxType type, std::span<const std::int64_t> shape,
                           std::string_view bytes) {
  std::string message;
  message.reserve(bytes.size() + name.size() + 64);
  pbf_writer tensor(message);
  tensor.add_packed_int64(1, shape.begin(), shape.end());
  tensor.add_int32(2, static_cast<std::int32_t>(type));
  tensor.add_string(8, name);
  tensor.add_bytes(9, bytes.data(), bytes.size());
  return message;
}

std::string attribute_message(const std::string& name, const OnnxAttribute& value) {
  // The kinds of attributes.
  enum Kind : std::int32_t { kFloat = 1, kInt = 2, kString = 3, kInts = 7, kStrings = 8 };
  std::string message;
  pbf_writer attribute(message);
  attribute.add_string(1, name);
  if (const auto* number = std::get_if<float>(&value)) {
    attribute.add_float(2, *number);
    attribute.add_enum(20, kFloat);
  } else if (const auto* whole = std::get_if<std::int64_t>(&value)) {
    attribute.add_int64(3, *whole);
    attribute.add_enum(20, kInt);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    attribute.add_bytes(4, *text);
    attribute.add_enum(20, kString);
  } else if (const auto* wholes = std::get_if<std::vector<std::int64_t>>(&value)) {
    for (const std::int64_t one : *wholes) attribute.add_int64(8, one);
    attribute.add_enum(20, kInts);
  } else {
    for (const std::string& one : std::get<std::vector<std::string>>(value)) attribute.add_bytes(9, one);
    attribute.add_enum(20, kStrings);
  }
  return message;
}

template <typename T>
std::string_view bytes_of_value(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

}  // namespace

OnnxType onnx_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return OnnxType::f32;
    case DType::f64: return OnnxType::f64;
    case DType::f16: return OnnxType::f16;
    case DType::bf16: return OnnxType::bf16;
    case DType::i64: return OnnxType::i64;
    case DType::u8: return OnnxType::u8;
    case DType::boolean: return OnnxType::boolean;
  }
  fail("export_onnx: unknown type {}", static_cast<int>(dtype));
}

std::string OnnxFile::fresh(std::string name) {
  const std::string base = name;
  for (int i = 1; !names_.insert(name).second; ++i) name = fmt::format("{}_{}", base, i);
  return name;
}

OnnxNames OnnxFile::nodes(std::string_view type, const OnnxNames& inputs, const OnnxAttributes& attributes,
                          int outputs) {
  Node node{.name = fresh(fmt::format("{}/{}", module_, type)),
            .type = std::string(type),
            .inputs = inputs,
            .outputs = {},
            .attributes = {attributes.begin(), attributes.end()}};
  // Removes omitted inputs at the end.
  while (!node.inputs.empty() && node.inputs.back().empty()) node.inputs.pop_back();
  for (int i = 0; i < outputs; ++i) node.outputs.push_back(fresh(fmt::format("{}:{}", node.name, i)));
  nodes_.push_back(std::move(node));
  return nodes_.back().outputs;
}

void OnnxFile::initializer(const std::string& name, OnnxType type, std::span<const std::int64_t> shape,
                           std::string_view bytes) {
  check(names_.insert(name).second, "export_onnx: two weights or inputs are named '{}'", name);
  initializers_.push_back({name, type, {shape.begin(), shape.end()}, std::string(bytes)});
}

std::string OnnxFile::constant(OnnxType type, std::span<const std::int64_t> shape, std::string_view bytes) {
  for (const Initializer& c : constants_) {
    if (c.type == type && std::ranges::equal(c.shape, shape) && c.bytes == bytes) return c.name;
  }
  constants_.push_back({fresh("constant"), type, {shape.begin(), shape.end()}, std::string(bytes)});
  return constants_.back().name;
}

std::string OnnxFile::whole(std::int64_t value) { return constant(OnnxType::i64, {}, bytes_of_value(value)); }

std::string OnnxFile::wholes(const std::vector<std::int64_t>& values) {
  const std::int64_t count = std::ssize(values);
  return constant(OnnxType::i64, {&count, 1},
                  {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(std::int64_t)});
}

std::string OnnxFile::number(DType dtype, const Scalar& value) {
  return visit_dtype(
      dtype, [&](auto zero) { return constant(onnx_type(dtype), {}, bytes_of_value(value.to<decltype(zero)>())); });
}

void OnnxFile::input(const std::string& name, OnnxType type, const OnnxShape& shape) {
  check(names_.insert(name).second, "export_onnx: two weights or inputs are named '{}'", name);
  inputs_.push_back({name, type, shape});
}

void OnnxFile::output(const std::string& name, const std::string& value, OnnxType type, const OnnxShape& shape) {
  check(names_.insert(name).second, "export_onnx: an output is named '{}', as another value is", name);
  nodes_.push_back(
      {.name = fresh(name + "/Identity"), .type = "Identity", .inputs = {value}, .outputs = {name}, .attributes = {}});
  outputs_.push_back({name, type, shape});
}

std::string OnnxFile::value_info(const ValueInfo& value) {
  std::string shape, tensor, type, message;
  for (const auto& extent : value.shape) {
    std::string dimension;
    pbf_writer writer(dimension);
    if (const auto* number = std::get_if<std::int64_t>(&extent)) {
      writer.add_int64(1, *number);
    } else {
      writer.add_string(2, std::get<std::string>(extent));
    }
    pbf_writer(shape).add_message(1, dimension);
  }
  pbf_writer(tensor).add_int32(1, static_cast<std::int32_t>(value.type));
  pbf_writer(tensor).add_message(2, shape);
  pbf_writer(type).add_message(1, tensor);
  pbf_writer(message).add_string(1, value.name);
  pbf_writer(message).add_message(2, type);
  return message;
}

std::string OnnxFile::bytes(const std::string& graph_name) const {
  static_assert(std::endian::native == std::endian::little);  // as the file's numbers are
  std::size_t size = 0;
  for (const auto* all : {&initializers_, &constants_}) {
    for (const Initializer& i : *all) size += i.bytes.size() + 64;
  }
  check(size < std::numeric_limits<std::int32_t>::max(),
        "export_onnx: the weights have {} bytes, expected less than 2 GiB, the most that a protocol buffer can have",
        size);
  std::string graph;
  graph.reserve(size);
  pbf_writer writer(graph);
  for (const Node& n : nodes_) {
    std::string message;
    pbf_writer node(message);
    for (const std::string& name : n.inputs) node.add_string(1, name);
    for (const std::string& name : n.outputs) node.add_string(2, name);
    node.add_string(3, n.name);
    node.add_string(4, n.type);
    for (const auto& [name, value] : n.attributes) node.add_message(5, attribute_message(name, value));
    writer.add_message(1, message);
  }
  writer.add_string(2, graph_name);
  for (const auto* all : {&initializers_, &constants_}) {
    for (const Initializer& i : *all) writer.add_message(5, tensor_message(i.name, i.type, i.shape, i.bytes));
  }
  for (const ValueInfo& value : inputs_) writer.add_message(11, value_info(value));
  for (const ValueInfo& value : outputs_) writer.add_message(12, value_info(value));

  std::string model, opset;
  model.reserve(graph.size() + 4096);
  pbf_writer file(model);
  file.add_int64(1, kIrVersion);
  file.add_string(2, "Lockstep");
  file.add_string(3, LOCKSTEP_VERSION);
  file.add_message(7, graph);
  pbf_writer set(opset);
  set.add_string(1, "");
  set.add_int64(2, kOpset);
  file.add_message(8, opset);
  for (const auto& [key, value] : metadata_) {
    std::string message;
    pbf_writer entry(message);
    entry.add_string(1, key);
    entry.add_string(2, value);
    file.add_message(14, message);
  }
  return model;
}

}  // namespace lockstep
