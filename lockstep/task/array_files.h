// Internal: the arrays x and y in a file or folder, for each format that has arrays.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/formats/file_array.h"
#include "lockstep/task/data_schema.h"

namespace lockstep {

// What an array of this name holds. x is also called data, images, inputs, features, or arr_0 (as numpy.savez calls the
// first array); y is also called label, labels, target, targets, or arr_1. "train", "training", "test", "val", "valid",
// or "validation" may come before or after it. Case does not matter: "X_train", "test-labels".
struct ArrayName {
  bool is_label = false, is_test = false;
};
std::optional<ArrayName> parse_array_name(std::string_view name);

struct ArrayPair {
  FileArray x;
  std::optional<FileArray> y;
};

struct ArrayFiles {
  std::optional<ArrayPair> train, test;
  std::vector<std::string> class_names{};
  // Names of all arrays, for errors; empty for IDX and CIFAR files.
  std::string found{};
  // Files that were read, for the digest.
  std::vector<std::filesystem::path> files{};
  // IDX only. For MNIST and its replacements, SHA-256 of the pixels and labels of each part, as FashionMnist::sha256().
  // For other data, `sha256` covers all parts and `test_sha256` is empty.
  std::string sha256{}, test_sha256{};
};

// Finds x and y, or x_train, y_train, x_test, and y_test, by parse_array_name(). x alone becomes `train` without y.
// Throws an Error that lists what was found.
ArrayFiles find_arrays(const std::filesystem::path& path, DataFormat format);

}  // namespace lockstep
