// Transforms of pictures, one by one or in a chain. Each is a function of a picture and a key, so an example is
// transformed alike on every machine and by any number of workers and processes, and differently in each epoch.
//
//   auto train = photos | RandomResizedCrop(224) | RandomHorizontalFlip() | Normalize({0.5}, {0.25});
//   Tensor small = Resize(64)(picture);
//   auto negative = photos | ImageTransform("Negative", [](const Tensor& x, RandomKey) { return 255 - x; });
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/autograd/tensor.h"
#include "lockstep/base/random.h"
#include "lockstep/data/dataset.h"

namespace LOCKSTEP_API lockstep {

// Height and width in pixels. A transform that takes one number means a square.
struct ImageSize {
  std::int64_t height = 0;
  std::int64_t width = 0;
  bool operator==(const ImageSize&) const = default;
};

// A picture is a host tensor [channels, height, width], u8 in 0 to 255 or f32. The transforms that follow keep the type
// unless they say otherwise, never change their argument, and may return it.
class ImageTransform {
 public:
  using Function = std::function<Tensor(const Tensor& image, RandomKey key)>;
  // `text` describes the transform for recipes and errors: "RandomCrop(32, padding=4)".
  ImageTransform(std::string text, Function function);
  // Applies the transform. The key decides what random transforms do. Safe to call from several threads at once.
  Tensor operator()(const Tensor& image, RandomKey key = {}) const;
  const std::string& str() const { return text_; }

 private:
  std::string text_;
  Function function_;
};

// Applies the transforms one after the other. Transform i gets a key of its own, made from the picture's key, the
// transform's name, and i.
class Compose : public ImageTransform {
 public:
  explicit Compose(std::vector<ImageTransform> transforms);
};

// `inner` with transforms applied to part 0 of each example, as the loader's threads load it.
class TransformedDataset : public Dataset {
 public:
  TransformedDataset(std::shared_ptr<const Dataset> inner, std::vector<ImageTransform> transforms);
  std::int64_t size() const override { return inner_->size(); }
  Example get(std::int64_t index) const override;
  Example get(std::int64_t index, RandomKey key) const override;
  Example raw(std::int64_t index) const override { return inner_->raw(index); }
  // Text of the chain, for TrainerOptions::recipe, because the transforms decide the bits.
  const std::string& str() const { return chain_.str(); }

 private:
  friend TransformedDataset operator|(const TransformedDataset& data, ImageTransform next);
  std::shared_ptr<const Dataset> inner_;
  std::vector<ImageTransform> transforms_;
  Compose chain_;
};

// Appends to the chain.
TransformedDataset operator|(const TransformedDataset& data, ImageTransform next);
template <std::derived_from<Dataset> D>
requires(!std::same_as<D, TransformedDataset>) TransformedDataset operator|(D data, ImageTransform first) {
  return TransformedDataset(std::make_shared<const D>(std::move(data)), {std::move(first)});
}
// The same for data that several chains share, such as one with and one without augmentation.
TransformedDataset operator|(std::shared_ptr<const Dataset> data, ImageTransform first);

}  // namespace lockstep
