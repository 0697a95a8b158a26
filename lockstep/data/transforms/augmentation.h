// Ready chains of transforms for pictures of mixed sizes.
//
//   auto train = photos | augmentation(Augment::standard, {64, 64}, {.rotation = 10}) | Normalize(mean, std);
//   auto test = test_photos | augmentation(Augment::none, {64, 64}) | Normalize(mean, std);
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "lockstep/data/transforms/color_jitter.h"
#include "lockstep/data/transforms/image_transform.h"

namespace LOCKSTEP_API lockstep {

enum class Augment : std::uint8_t { none, light, standard };

// Parses "none", "light", or "standard"; throws an Error for other names.
Augment parse_augment(std::string_view name);
std::string_view augment_name(Augment augment);

// Random transforms, in the order in which they are applied. A value that is set replaces that of the Augment; 0 leaves
// the transform out.
struct AugmentOptions {
  // Smallest share of the area, at most 1, that RandomResizedCrop takes. 0: ResizeAndCrop instead.
  std::optional<double> resized_crop = {};
  // Padding of RandomCrop in pixels.
  std::optional<std::int64_t> crop_padding = {};
  // Probabilities of RandomHorizontalFlip and RandomVerticalFlip.
  std::optional<double> flip = {}, vertical_flip = {};
  // Largest angle of RandomRotation in degrees.
  std::optional<double> rotation = {};
  std::optional<ColorJitterOptions> color_jitter = {};
  // Probability of RandomErasing.
  std::optional<double> erasing = {};
};

// Returns a transform that makes pictures of this size and keeps their type:
//   none      ResizeAndCrop
//   light     ResizeAndCrop, RandomCrop with an eighth of the shorter edge as padding, RandomHorizontalFlip
//   standard  RandomResizedCrop of 0.35 to 1 of the area, RandomHorizontalFlip, ColorJitter(0.2, 0.2, 0.2, 0.02),
//             RandomErasing with probability 0.25
// with the changes of `options`. Pictures have one or three channels; f32 ones lie in 0 to 1.
ImageTransform augmentation(Augment augment, ImageSize size, const AugmentOptions& options = {});
// Whether the augmentation does more than change the size.
bool augments(Augment augment, const AugmentOptions& options);

}  // namespace lockstep
