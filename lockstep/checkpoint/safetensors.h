// The safetensors format (https://huggingface.co/docs/safetensors), which PyTorch and others read and write:
// 8 bytes of header length (little-endian), a JSON header {name: {dtype, shape, data_offsets}}, then the
// elements of all tensors, row-major and little-endian, without holes. Reading it runs no code.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/checkpoint/byte_sink.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/shape.h"

namespace lockstep {

// One named tensor. The bytes belong to someone else: to the caller of write_safetensors, or to a
// SafetensorsFile. They may start at any address, so copy them rather than read them in place.
struct TensorBytes {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::span<const std::byte> bytes;
};

// Free text about the whole file. Readers of PyTorch weights look for {"format": "pt"}.
using SafetensorsMetadata = std::map<std::string, std::string>;

// Tensors with larger elements come first, otherwise in the order given: thus each is aligned to its element,
// which PyTorch needs, and equal tensors make equal files. Names must be UTF-8 and differ from one another.
void write_safetensors(const ByteSink& sink, std::span<const TensorBytes> tensors,
                       const SafetensorsMetadata& metadata = {});
// Under its name there is the older file, or none, until the new one is whole and on the disk.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorBytes> tensors,
                       const SafetensorsMetadata& metadata = {});

struct SafetensorsFile {
  std::vector<TensorBytes> tensors;  // in the order of their data
  SafetensorsMetadata metadata;
  std::shared_ptr<const std::string> contents;  // what the tensors' bytes point into

  // Null if there is none of that name.
  const TensorBytes* find(std::string_view name) const;
};

// Reads a file that anyone may have written: whatever is wrong with it is an Error that names the file, the
// tensor, what was found and what was expected, and nothing is allocated that the file has no bytes for.
SafetensorsFile read_safetensors(const std::filesystem::path& path);
// The same for bytes that are in memory already; `origin` stands for the file in errors.
SafetensorsFile parse_safetensors(std::string bytes, std::string_view origin);

}  // namespace lockstep
