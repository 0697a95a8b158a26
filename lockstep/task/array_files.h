// Internal: the arrays x and y of a path, in each of the formats that have some.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/formats/file_array.h"
#include "lockstep/task/data_schema.h"

namespace lockstep {

// What an array of this name holds: x is also called data, images, inputs, features, or arr_0 (as numpy.savez calls the
// first array); y is also called label, labels, target, targets, or arr_1. In front or behind, "train", or "test",
// "val", "valid", or "validation". Case does not matter: "X_train", "test-labels".
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
  // The names of all arrays, for errors; empty where the format knows what it has.
  std::string found{};
  // For the digest.
  std::vector<std::filesystem::path> files{};
  // Of IDX: SHA-256 of all pixels and labels. Of MNIST and data in its place, whose recipes name the training part:
  // that of each part, as FashionMnist::sha256().
  std::string sha256{}, test_sha256{};
};

// x and y, or x_train, y_train, x_test, and y_test, by parse_array_name(). If there is x alone, it is `train` without
// y. Throws an Error that lists what was found.
ArrayFiles find_arrays(const std::filesystem::path& path, DataFormat format);

}  // namespace lockstep
