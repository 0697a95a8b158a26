// The files of Fashion-MNIST (Xiao, Rasul, Vollgraf 2017, arXiv:1708.07747): 60,000 training and 10,000 test
// images of 28 x 28 grey pixels in ten classes, in the IDX format and under the names of MNIST.
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

// Where the data is: `folder` if it is not empty, or the environment's LOCKSTEP_DATA, or the folder of
// Debian's package dataset-fashion-mnist. Throws, and says how to get the data, if that is no folder.
std::filesystem::path find_fashion_mnist(const std::filesystem::path& folder = {});

// Reads `train-images-idx3-ubyte` and `train-labels-idx1-ubyte` (`t10k-` for the test part), each gzipped
// with or without `.gz` in its name, from find_fashion_mnist(folder). Throws if they are missing, damaged or
// do not fit together; images may be of any size.
MnistFiles load_fashion_mnist(MnistPart part, const std::filesystem::path& folder = {});

}  // namespace lockstep
