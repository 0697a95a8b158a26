// Fashion-MNIST (Xiao, Rasul, Vollgraf 2017): 60,000 + 10,000 28x28 grayscale images of clothes in ten classes. MNIST
// and similar data sets use the same files, in the IDX format.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/dataset.h"

namespace LOCKSTEP_API lockstep {

inline constexpr std::array<std::string_view, 10> kFashionMnistClasses{
    "t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"};

// The names of MNIST's files, which may also end in .gz.
inline constexpr std::array<std::string_view, 4> kMnistFiles{"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                                             "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

enum class MnistPart { train, test };

struct MnistFiles {
  std::int64_t count = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<std::uint8_t> pixels;  // count x rows x cols; 0 is the background
  std::vector<std::uint8_t> labels;  // count, each 0 to 9
};

// Returns the folder of the data: `folder` if it is not empty, otherwise that of the environment variable
// LOCKSTEP_DATA, otherwise that of Debian's package dataset-fashion-mnist. Throws an error that says how to get the
// data if the folder does not exist.
std::filesystem::path find_fashion_mnist(const std::filesystem::path& folder = {});

// Whether the folder has a file with the name of one of MNIST's four files. Drop-in replacements of MNIST, such as
// Fashion-MNIST, have files of the same names, and ten classes.
bool is_mnist(const std::filesystem::path& folder);

// Reads `train-images-idx3-ubyte` and `train-labels-idx1-ubyte` (`t10k-` for the test part), each plain or gzipped,
// with or without `.gz` in its name, from find_fashion_mnist(folder). Throws if they are missing, damaged, or
// inconsistent. Images may have any size.
MnistFiles load_fashion_mnist(MnistPart part, const std::filesystem::path& folder = {});

// Examples are {image f32 [1, rows, cols] in 0 to 1, label i64 []}.
class FashionMnist : public Dataset {
 public:
  explicit FashionMnist(MnistFiles files);
  std::int64_t size() const override { return files_.count; }
  using Dataset::get;
  Example get(std::int64_t index) const override;
  Example batch(std::span<const std::int64_t> indices, std::span<const RandomKey> keys) const override;
  // SHA-256 of all pixels and labels, 64 hexadecimal digits; identifies the data of a training run.
  std::string sha256() const;

 private:
  MnistFiles files_;
};

}  // namespace lockstep
