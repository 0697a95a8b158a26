// The files of Fashion-MNIST (Xiao, Rasul, Vollgraf 2017, arXiv:1708.07747): 60,000 training and 10,000 test images of
// 28 x 28 gray pixels in ten classes, in the IDX format with MNIST's file names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

enum class MnistPart { train, test };

struct MnistFiles {
  std::int64_t count = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<std::uint8_t> pixels;  // count x rows x cols; 0 is the background
  std::vector<std::uint8_t> labels;  // count, each 0 to 9
};

// Finds the data: in `folder` if it is not empty, otherwise in the environment's LOCKSTEP_DATA, otherwise in the folder
// of Debian's package dataset-fashion-mnist. If that folder does not exist, throws an error that says how to get the
// data.
std::filesystem::path find_fashion_mnist(const std::filesystem::path& folder = {});

// Reads `train-images-idx3-ubyte` and `train-labels-idx1-ubyte` (`t10k-` for the test part), each plain or gzipped,
// with or without `.gz` in its name, from find_fashion_mnist(folder). Throws if they are missing, damaged, or
// inconsistent. Images may have any size.
MnistFiles load_fashion_mnist(MnistPart part, const std::filesystem::path& folder = {});

}  // namespace lockstep
