// CIFAR-10 and CIFAR-100 in their binary form (www.cs.toronto.edu/~kriz/cifar.html).
//
//   const CifarFiles files = read_cifar("cifar-10-batches-bin");
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/formats/file_array.h"

namespace LOCKSTEP_API lockstep {

struct CifarPart {
  FileArray images;  // u8 [n, 3, 32, 32]
  FileArray labels;  // u8 [n]; the fine labels of CIFAR-100
};

struct CifarFiles {
  CifarPart train;
  std::optional<CifarPart> test;
  // Names from batches.meta.txt or fine_label_names.txt; without the file, "0", "1", and so on.
  std::vector<std::string> class_names;
  // Files that were read, in the order of their examples.
  std::vector<std::filesystem::path> files;
};

// Whether the folder has data_batch_1.bin or train.bin.
bool is_cifar(const std::filesystem::path& folder);
// Reads data_batch_1.bin, data_batch_2.bin, ..., and test_batch.bin (CIFAR-10), or train.bin and test.bin (CIFAR-100).
// Throws an Error that names the file for sizes that are not whole records, and labels out of range.
CifarFiles read_cifar(const std::filesystem::path& folder);

}  // namespace lockstep
