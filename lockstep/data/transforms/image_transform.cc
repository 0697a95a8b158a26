#include "lockstep/data/transforms/image_transform.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::string chain_text(const std::vector<ImageTransform>& transforms) {
  std::string text;
  for (const ImageTransform& transform : transforms) {
    if (!text.empty()) text += " | ";
    text += transform.str();
  }
  return text.empty() ? "Compose()" : text;
}

}  // namespace

ImageTransform::ImageTransform(std::string text, Function function)
    : text_(std::move(text)), function_(std::move(function)) {
  check(function_ != nullptr, "image transform {}: no function", text_);
}

Tensor ImageTransform::operator()(const Tensor& image, RandomKey key) const { return function_(image, key); }

Compose::Compose(std::vector<ImageTransform> transforms)
    : ImageTransform(chain_text(transforms), [transforms](const Tensor& image, RandomKey key) {
        Tensor result = image;
        for (std::size_t i = 0; i < transforms.size(); ++i) {
          // Leaves the options out of the key, so that they do not change the draws.
          const std::string& text = transforms[i].str();
          const std::uint64_t name = hash_name(std::string_view(text).substr(0, text.find('(')));
          result = transforms[i](result, random_key(key.seed, {key.stream, name, i}));
        }
        return result;
      }) {}

TransformedDataset::TransformedDataset(std::shared_ptr<const Dataset> inner, std::vector<ImageTransform> transforms)
    : inner_(std::move(inner)), transforms_(std::move(transforms)), chain_(transforms_) {
  check(inner_ != nullptr, "transformed dataset: no data");
}

Example TransformedDataset::get(std::int64_t index) const {
  return get(index, random_key(0, {static_cast<std::uint64_t>(index)}));
}

Example TransformedDataset::get(std::int64_t index, RandomKey key) const {
  Example example = inner_->get(index, key);
  check(!example.empty(), "transformed dataset: example {} has no parts, expected a picture as part 0", index);
  example[0] = chain_(example[0], key);
  return example;
}

TransformedDataset operator|(const TransformedDataset& data, ImageTransform next) {
  std::vector<ImageTransform> transforms = data.transforms_;
  transforms.push_back(std::move(next));
  return TransformedDataset(data.inner_, std::move(transforms));
}

TransformedDataset operator|(std::shared_ptr<const Dataset> data, ImageTransform first) {
  return TransformedDataset(std::move(data), {std::move(first)});
}

}  // namespace lockstep
