// A model's weights and buffers as one safetensors file under PyTorch's names. PyTorch and Lockstep read each other's
// files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/nn/module.h"
#include "lockstep/nn/state_dict.h"

namespace LOCKSTEP_API lockstep {

// Writes a file that the same model in PyTorch loads with strict=True. Throws if a value is not finite (see
// sound_state_dict), and then leaves an older file unchanged.
void save_weights(const std::filesystem::path& path, const Module& module);
// Loads a safetensors file; several, by their index (model.safetensors.index.json or its folder); a checkpoint that
// Trainer wrote; or the newest checkpoint in a folder ("ck", "ck/best"). If the checkpoint has a moving average of the
// weights, takes the average, which is what tests measure and --export writes. Strict, like load_state_dict(), and
// casts floating types. Errors name the file.
void load_weights(const std::filesystem::path& path, Module& module);
// Like load_matching_state(), from the same files and folders. The result lists entries of unusable types, too.
UnmatchedEntries load_matching_weights(const std::filesystem::path& path, Module& module);

// SHA-256 over all parameters and floating-point buffers, sorted by name, as little-endian bytes in plain layout.
std::string weights_sha256(const Module& module);

// Throws if a tensor, in plain host memory, holds an infinity or a NaN: `what: fc.weight holds nan at element 3`.
void check_finite(const StateDict& state, std::string_view what);
// Returns state_dict(module). Throws like check_finite, except that a buffer that training does not compute, such as a
// mask, may hold infinities.
StateDict sound_state_dict(const Module& module, std::string_view what);

// The safetensors format (https://huggingface.co/docs/safetensors), which PyTorch and others read and write: 8 bytes of
// header length (little-endian), a JSON header {name: {dtype, shape, data_offsets}}, then the elements of all tensors,
// row-major and little-endian, without holes. Reading a file runs no code from it.

// One named tensor. It does not own the bytes. They may be unaligned: copy them before use.
struct TensorBytes {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::span<const std::byte> bytes;
};

// weights_sha256() of a model with these tensors.
std::string weights_sha256_of(std::vector<TensorBytes> tensors);

// Free text about the whole file. Readers of PyTorch weights look for {"format": "pt"}.
using SafetensorsMetadata = std::map<std::string, std::string>;

// A destination for bytes: a file, a digest, or both at once. It accepts all bytes or throws.
using ByteSink = std::function<void(std::span<const std::byte>)>;

// Writes tensors with larger elements first, and otherwise keeps the given order. This aligns each tensor to its
// element size, as PyTorch requires, and makes equal tensors give equal files. Names must be UTF-8 and unique.
void write_safetensors(const ByteSink& sink, std::span<const TensorBytes> tensors,
                       const SafetensorsMetadata& metadata = {});
// Writes a file. An older file of that name stays until the new one is complete and on disk.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorBytes> tensors,
                       const SafetensorsMetadata& metadata = {});

// An entry that no Tensor can hold as it is: of another type, such as I32 or F8_E4M3, or with too many axes.
struct ForeignTensor {
  std::string name, dtype;  // `dtype` as the file writes it
  std::vector<std::int64_t> dims;
  std::span<const std::byte> bytes;

  std::string describe() const;  // "F8_E4M3 [2, 3]"
};

struct SafetensorsFile {
  std::vector<TensorBytes> tensors;  // in the order of their data
  std::vector<ForeignTensor> foreign = {};
  SafetensorsMetadata metadata;
  std::shared_ptr<const std::string> contents;  // owns the tensors' bytes

  // Null if there is no tensor of that name.
  const TensorBytes* find(std::string_view name) const;
};

// Safe for untrusted files. Throws an Error for each flaw: it names the file, the tensor, the value found, and the
// value expected. Allocates memory only for bytes that the file has.
SafetensorsFile read_safetensors(const std::filesystem::path& path);
// The same for bytes in memory. Errors name `origin` as the file.
SafetensorsFile parse_safetensors(std::string bytes, std::string_view origin);

// Convert between host tensors and files. Foreign integers of at most 32 bits become i64; other foreign tensors are
// left out. A nonzero byte of a bool becomes 1.
std::vector<TensorBytes> as_bytes(const StateDict& state);
StateDict as_tensors(const SafetensorsFile& file);

}  // namespace lockstep
