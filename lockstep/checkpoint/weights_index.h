// Internal: the index of weights in several safetensors files, model.safetensors.index.json, as libraries of large
// models write it: {"metadata": {...}, "weight_map": {name: file, ...}}.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The names of tensors by file. The files lie beside the index.
using WeightsIndex = std::map<std::string, std::vector<std::string>>;

// Returns the index that a path names: the path itself, or the index in that folder. Nothing if there is none.
std::optional<std::filesystem::path> find_weights_index(const std::filesystem::path& path);
// Safe for untrusted files. Throws an Error that names the file and what it found, also for a file outside the folder.
WeightsIndex parse_weights_index(std::string_view text, std::string_view origin);

}  // namespace lockstep
