// Fashion-MNIST (Xiao, Rasul, Vollgraf 2017): 60,000 + 10,000 28x28 grayscale images of clothes in ten classes. MNIST
// and similar data sets use the same files.
#pragma once

#include <array>
#include <filesystem>
#include <string_view>

#include "lockstep/data/dataset.h"
#include "lockstep/data/fashion_mnist_files.h"

namespace LOCKSTEP_API lockstep {

inline constexpr std::array<std::string_view, 10> kFashionMnistClasses{
    "t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"};

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
