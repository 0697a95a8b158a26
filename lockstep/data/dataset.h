// Data sets: numbered examples in host memory. Tensors, random vectors, Fashion-MNIST, text, and data of your own.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/autograd/tensor.h"
#include "lockstep/base/random.h"

namespace LOCKSTEP_API lockstep {

// The parts of one example, such as {image, label}, as host tensors, or of a batch, with one more axis in front.
using Example = std::vector<Tensor>;

// Base class for your own data: implement size() and get(). Both must be safe to call from several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  // 0 <= index < size(). Each part must have the same shape and type in all examples.
  virtual Example get(std::int64_t index) const = 0;
  // For data with random transforms. `key` depends on (seed, epoch, index): an example is the same in every process and
  // differs between epochs.
  virtual Example get(std::int64_t index, RandomKey key) const {
    (void)key;
    return get(index);
  }
  // Returns examples stacked along axis 0. `keys` is as long as `indices`. The default stacks the results of get().
  virtual Example batch(std::span<const std::int64_t> indices, std::span<const RandomKey> keys) const;
};

// Example i is row i of each tensor. All tensors are in host memory and have the same size(0).
class TensorDataset : public Dataset {
 public:
  explicit TensorDataset(std::vector<Tensor> tensors);
  std::int64_t size() const override { return tensors_[0].size(0); }
  using Dataset::get;
  Example get(std::int64_t index) const override;
  Example batch(std::span<const std::int64_t> indices, std::span<const RandomKey> keys) const override;

 private:
  std::vector<Tensor> tensors_;
};

struct RandomDatasetOptions {
  std::int64_t examples = 0;
  std::int64_t length = 0;
  std::uint64_t seed = 0;
};

// Examples are {f32 [length]}: vectors of standard normal numbers, the same for the same seed.
class RandomDataset : public Dataset {
 public:
  explicit RandomDataset(RandomDatasetOptions options);
  std::int64_t size() const override { return options_.examples; }
  using Dataset::get;
  Example get(std::int64_t index) const override;

 private:
  RandomDatasetOptions options_;
};

// `inner` with `transform` applied to each example as it is loaded. Pass a shared_ptr if several data sets share
// `inner`.
class MapDataset : public Dataset {
 public:
  using Transform = std::function<Example(Example example, RandomKey key)>;
  MapDataset(std::shared_ptr<const Dataset> inner, Transform transform);
  template <std::derived_from<Dataset> D>
  MapDataset(D inner, Transform transform)
      : MapDataset(std::make_shared<const D>(std::move(inner)), std::move(transform)) {}
  std::int64_t size() const override { return inner_->size(); }
  Example get(std::int64_t index) const override;
  Example get(std::int64_t index, RandomKey key) const override;

 private:
  std::shared_ptr<const Dataset> inner_;
  Transform transform_;
};

// The first `count` examples of `inner`, or all of them if there are fewer.
//
//   HeadDataset few(FashionMnist(load_fashion_mnist(MnistPart::train)), 512);
class HeadDataset : public Dataset {
 public:
  HeadDataset(std::shared_ptr<const Dataset> inner, std::int64_t count);
  template <std::derived_from<Dataset> D>
  HeadDataset(D inner, std::int64_t count) : HeadDataset(std::make_shared<const D>(std::move(inner)), count) {}
  std::int64_t size() const override { return count_; }
  Example get(std::int64_t index) const override { return inner_->get(index); }
  Example get(std::int64_t index, RandomKey key) const override { return inner_->get(index, key); }
  Example batch(std::span<const std::int64_t> indices, std::span<const RandomKey> keys) const override {
    return inner_->batch(indices, keys);
  }

 private:
  std::shared_ptr<const Dataset> inner_;
  std::int64_t count_;
};

// Fashion-MNIST (Xiao, Rasul, Vollgraf 2017): 60,000 + 10,000 28x28 grayscale images of clothes in ten classes. MNIST
// and similar data sets use the same files, in the IDX format.

inline constexpr std::array<std::string_view, 10> kFashionMnistClasses{
    "t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"};

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

// Text for character-level language models. A character is one byte.
//
//   const CharacterSet characters(text);
//   TextDataset data(characters.encode(text), {.context = 128, .random_starts = true});

// The characters that occur in a text, numbered from 0 in ascending order.
class CharacterSet {
 public:
  explicit CharacterSet(std::string_view text);
  std::int64_t size() const { return static_cast<std::int64_t>(characters_.size()); }
  // Throws an Error that names the character if one is not in the set.
  std::vector<std::int64_t> encode(std::string_view text) const;
  std::string decode(std::span<const std::int64_t> ids) const;

 private:
  std::string characters_;
};

struct TextOptions {
  // The characters of an example.
  std::int64_t context = 128;
  // For training: each example starts at a random position, which differs in each epoch. Otherwise, each example starts
  // where the previous one ends.
  bool random_starts = false;
};

// Examples are {window, the window one character later}, both i64 [context]: the label of each character is the next
// one. An epoch has as many windows as fit without overlap.
class TextDataset : public Dataset {
 public:
  // `ids` come from CharacterSet::encode. Throws if `ids` is not longer than the context.
  TextDataset(std::vector<std::int64_t> ids, TextOptions options);
  std::int64_t size() const override;
  Example get(std::int64_t index) const override;
  Example get(std::int64_t index, RandomKey key) const override;

 private:
  Example window(std::int64_t start) const;

  std::vector<std::int64_t> ids_;
  TextOptions options_;
};

}  // namespace lockstep
