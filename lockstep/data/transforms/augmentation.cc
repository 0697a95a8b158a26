#include "lockstep/data/transforms/augmentation.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms/crop.h"
#include "lockstep/data/transforms/flip.h"
#include "lockstep/data/transforms/random_erasing.h"
#include "lockstep/data/transforms/resize.h"
#include "lockstep/data/transforms/rotation.h"

namespace lockstep {
namespace {

bool changes_colors(const ColorJitterOptions& o) {
  return o.brightness != 0 || o.contrast != 0 || o.saturation != 0 || o.hue != 0;
}

// Sets all values of a chain: to 0 if neither `augment` nor `given` sets one.
AugmentOptions resolved(Augment augment, ImageSize size, const AugmentOptions& given) {
  AugmentOptions o;
  if (augment == Augment::light) o = {.crop_padding = std::min(size.height, size.width) / 8, .flip = 0.5};
  if (augment == Augment::standard) {
    o = {.resized_crop = 0.35,
         .flip = 0.5,
         .color_jitter = ColorJitterOptions{.brightness = 0.2, .contrast = 0.2, .saturation = 0.2, .hue = 0.02},
         .erasing = 0.25};
  }
  return {.resized_crop = given.resized_crop.value_or(o.resized_crop.value_or(0)),
          .crop_padding = given.crop_padding.value_or(o.crop_padding.value_or(0)),
          .flip = given.flip.value_or(o.flip.value_or(0)),
          .vertical_flip = given.vertical_flip.value_or(0),
          .rotation = given.rotation.value_or(0),
          .color_jitter = given.color_jitter.value_or(o.color_jitter.value_or(ColorJitterOptions{})),
          .erasing = given.erasing.value_or(o.erasing.value_or(0))};
}

}  // namespace

Augment parse_augment(std::string_view name) {
  for (Augment augment : {Augment::none, Augment::light, Augment::standard}) {
    if (augment_name(augment) == name) return augment;
  }
  fail("augment \"{}\", expected none, light, or standard", name);
}

std::string_view augment_name(Augment augment) {
  switch (augment) {
    case Augment::none: return "none";
    case Augment::light: return "light";
    case Augment::standard: return "standard";
  }
  fail("augment {}, expected none, light, or standard", static_cast<int>(augment));
}

ImageTransform augmentation(Augment augment, ImageSize size, const AugmentOptions& options) {
  const AugmentOptions o = resolved(augment, size, options);
  std::vector<ImageTransform> chain;
  if (*o.resized_crop != 0) {
    chain.push_back(RandomResizedCrop(size, {.min_scale = *o.resized_crop}));
  } else {
    chain.push_back(ResizeAndCrop(size));
  }
  // The crop stays in the chain even if an eighth is 0, for tiny pictures: later transforms draw by their index.
  if (*o.crop_padding != 0 || (augment == Augment::light && !options.crop_padding)) {
    chain.push_back(RandomCrop(size, {.padding = *o.crop_padding}));
  }
  if (*o.flip != 0) chain.push_back(RandomHorizontalFlip(*o.flip));
  if (*o.vertical_flip != 0) chain.push_back(RandomVerticalFlip(*o.vertical_flip));
  if (*o.rotation != 0) chain.push_back(RandomRotation(*o.rotation));
  if (changes_colors(*o.color_jitter)) chain.push_back(ColorJitter(*o.color_jitter));
  if (*o.erasing != 0) chain.push_back(RandomErasing({.p = *o.erasing}));
  // A single transform that is not random needs no key of its own, which Compose would give it.
  return chain.size() == 1 && *o.resized_crop == 0 ? chain.front() : Compose(std::move(chain));
}

bool augments(Augment augment, const AugmentOptions& options) {
  constexpr ImageSize kAny{64, 64};
  const AugmentOptions o = resolved(augment, kAny, options);
  return *o.resized_crop != 0 || *o.crop_padding != 0 || *o.flip != 0 || *o.vertical_flip != 0 || *o.rotation != 0 ||
         changes_colors(*o.color_jitter) || *o.erasing != 0;
}

}  // namespace lockstep
