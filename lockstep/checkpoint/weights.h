// A model's weights and buffers as one safetensors file, under PyTorch's names: PyTorch reads what Lockstep writes, and
// back.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/nn/state_dict.h"

namespace lockstep {

// Writes the file that PyTorch's load_state_dict(strict=True) of the same model takes. Throws for values that
// sound_state_dict refuses; an older file stays.
void save_weights(const std::filesystem::path& path, const Module& module);
// Strict, as load_state_dict is. Errors name the file.
void load_weights(const std::filesystem::path& path, Module& module);
// As load_matching_state. Errors name the file.
UnmatchedEntries load_matching_weights(const std::filesystem::path& path, Module& module);

// SHA-256 over all parameters and floating-point buffers, sorted by name, as little-endian bytes in plain layout.
std::string weights_sha256(const Module& module);

// Throws if a tensor, in plain host memory, holds an infinity or a NaN: `what: fc.weight holds nan at element 3`.
void check_finite(const StateDict& state, std::string_view what);
// state_dict(module). Throws like check_finite, but a buffer that training does not compute may hold infinities: a mask
// does.
StateDict sound_state_dict(const Module& module, std::string_view what);

// Convert between host tensors and files.
std::vector<TensorBytes> as_bytes(const StateDict& state);
StateDict as_tensors(const SafetensorsFile& file);

}  // namespace lockstep
