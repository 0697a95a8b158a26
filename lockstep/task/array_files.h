// Internal: the arrays x and y of a path, in each of the formats that have some.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/file_array.h"
#include "lockstep/task/data_schema.h"

namespace lockstep {

struct ArrayPair {
  FileArray x;
  std::optional<FileArray> y;
};

struct ArrayFiles {
  std::optional<ArrayPair> train, test;
  std::vector<std::string> class_names{};
  // For the digest.
  std::vector<std::filesystem::path> files{};
  // Of IDX: SHA-256 of the training part's pixels and labels, as FashionMnist::sha256().
  std::string sha256{};
};

// x and y, or x_train, y_train, x_test, and y_test. If there is x alone, it is `train` without y. Throws an Error that
// lists what was found.
ArrayFiles find_arrays(const std::filesystem::path& path, DataFormat format);

}  // namespace lockstep
