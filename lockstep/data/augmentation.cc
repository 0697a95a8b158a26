#include "lockstep/data/augmentation.h"

#include <algorithm>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/data/color_jitter.h"
#include "lockstep/data/crop.h"
#include "lockstep/data/flip.h"
#include "lockstep/data/random_erasing.h"
#include "lockstep/data/resize.h"

namespace lockstep {

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

ImageTransform augmentation(Augment augment, ImageSize size) {
  switch (augment) {
    case Augment::none: return ResizeAndCrop(size);
    case Augment::light:
      return Compose({ResizeAndCrop(size), RandomCrop(size, {.padding = std::min(size.height, size.width) / 8}),
                      RandomHorizontalFlip()});
    case Augment::standard:
      return Compose({RandomResizedCrop(size, {.min_scale = 0.35}), RandomHorizontalFlip(),
                      ColorJitter({.brightness = 0.2, .contrast = 0.2, .saturation = 0.2, .hue = 0.02}),
                      RandomErasing({.p = 0.25})});
  }
  fail("augment {}, expected none, light, or standard", static_cast<int>(augment));
}

}  // namespace lockstep
