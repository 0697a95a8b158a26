// A model's weights and buffers as one safetensors file under PyTorch's names. PyTorch and Lockstep read each other's
// files.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

// Writes a file that the same model in PyTorch loads with strict=True. Throws if a value is not finite (see
// sound_state_dict); an older file then stays.
void save_weights(const std::filesystem::path& path, const Module& module);
// Strict, like load_state_dict. Errors name the file.
void load_weights(const std::filesystem::path& path, Module& module);
// As load_matching_state. Errors name the file.
UnmatchedEntries load_matching_weights(const std::filesystem::path& path, Module& module);

// SHA-256 over all parameters and floating-point buffers, sorted by name, as little-endian bytes in plain layout.
std::string weights_sha256(const Module& module);

// Throws if a tensor, in plain host memory, holds an infinity or a NaN: `what: fc.weight holds nan at element 3`.
void check_finite(const StateDict& state, std::string_view what);
// Returns state_dict(module). Throws like check_finite, except that a buffer that training does not compute, such as a
// mask, may hold infinities.
StateDict sound_state_dict(const Module& module, std::string_view what);

// Convert between host tensors and files.
std::vector<TensorBytes> as_bytes(const StateDict& state);
StateDict as_tensors(const SafetensorsFile& file);

}  // namespace lockstep
