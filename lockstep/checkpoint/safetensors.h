// The safetensors format (https://huggingface.co/docs/safetensors), which PyTorch and others read and write: 8 bytes of
// header length (little-endian), a JSON header {name: {dtype, shape, data_offsets}}, then the elements of all tensors,
// row-major and little-endian, without holes. Reading a file runs no code from it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/shape.h"

namespace LOCKSTEP_API lockstep {

// One named tensor. It does not own the bytes. They may be unaligned: copy them before use.
struct TensorBytes {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::span<const std::byte> bytes;
};

// Free text about the whole file. Readers of PyTorch weights look for {"format": "pt"}.
using SafetensorsMetadata = std::map<std::string, std::string>;

// Tensors with larger elements come first, otherwise in the given order. This aligns each tensor to its element size,
// as PyTorch requires, and makes equal tensors give equal files. Names must be UTF-8 and unique.
void write_safetensors(const ByteSink& sink, std::span<const TensorBytes> tensors,
                       const SafetensorsMetadata& metadata = {});
// An older file of that name stays until the new one is complete and on disk.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorBytes> tensors,
                       const SafetensorsMetadata& metadata = {});

struct SafetensorsFile {
  std::vector<TensorBytes> tensors;  // in the order of their data
  SafetensorsMetadata metadata;
  std::shared_ptr<const std::string> contents;  // owns the tensors' bytes

  // Null if there is no tensor of that name.
  const TensorBytes* find(std::string_view name) const;
};

// Safe for untrusted files. Each flaw is an Error that names the file, the tensor, the value found, and the value
// expected. Memory is allocated only for bytes that the file has.
SafetensorsFile read_safetensors(const std::filesystem::path& path);
// The same for bytes in memory. Errors name `origin` as the file.
SafetensorsFile parse_safetensors(std::string bytes, std::string_view origin);

}  // namespace lockstep
