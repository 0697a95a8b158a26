#include "lockstep/checkpoint/weights_index.h"

#include <nlohmann/json.hpp>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/json_input.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr std::string_view kExtension = ".safetensors.index.json";
constexpr const char* kInFolder = "model.safetensors.index.json";
constexpr std::size_t kMaxNesting = 8;  // of the metadata, which nobody reads

// Whether the name has no folder, so that an index makes nobody read files elsewhere.
bool is_beside(const std::string& file) {
  return !file.empty() && file != "." && file != ".." && file.find('/') == file.npos && file.find('\0') == file.npos;
}

}  // namespace

std::optional<std::filesystem::path> find_weights_index(const std::filesystem::path& path) {
  std::error_code told_by_the_reader;
  if (!std::filesystem::is_directory(path, told_by_the_reader)) {
    return path.string().ends_with(kExtension) ? std::optional(path) : std::nullopt;
  }
  const std::filesystem::path index = path / kInFolder;
  return std::filesystem::exists(index, told_by_the_reader) ? std::optional(index) : std::nullopt;
}

WeightsIndex parse_weights_index(std::string_view text, std::string_view origin) {
  json index;
  try {
    index = parse_json<json>(text, {.what = std::string(origin), .depth = kMaxNesting});
  } catch (const json::exception& error) {
    fail("{}: not valid JSON: {}", origin, excerpt(json(error.what())));
  }
  check(index.is_object() && index.contains("weight_map") && index["weight_map"].is_object(),
        "{}: found {}, expected an object with \"weight_map\": {{name: file}}", origin, excerpt(index));
  WeightsIndex files;
  for (const auto& [name, file] : index["weight_map"].items()) {
    check(file.is_string() && is_beside(file.get_ref<const std::string&>()),
          "{}: {} is in {}, expected the name of a file in the same folder", origin, excerpt(name), excerpt(file));
    files[file.get<std::string>()].push_back(name);
  }
  check(!files.empty(), "{}: weight_map is empty", origin);
  return files;
}

}  // namespace lockstep
