// Ready chains of transforms for pictures of mixed sizes.
//
//   auto train = photos | augmentation(Augment::standard, {64, 64}) | Normalize(mean, std);
//   auto test = test_photos | augmentation(Augment::none, {64, 64}) | Normalize(mean, std);
#pragma once

#include <cstdint>
#include <string_view>

#include "lockstep/data/image_transform.h"

namespace LOCKSTEP_API lockstep {

enum class Augment : std::uint8_t { none, light, standard };

// "none", "light", or "standard"; an Error otherwise.
Augment parse_augment(std::string_view name);
std::string_view augment_name(Augment augment);

// Makes pictures of this size, of the type that they have:
//   none      ResizeAndCrop
//   light     ResizeAndCrop, RandomCrop with an eighth of the shorter edge as padding, RandomHorizontalFlip
//   standard  RandomResizedCrop of 0.35 to 1 of the area, RandomHorizontalFlip, ColorJitter(0.2, 0.2, 0.2, 0.02),
//             RandomErasing with probability 0.25
// Pictures have one or three channels; f32 ones lie in 0 to 1.
ImageTransform augmentation(Augment augment, ImageSize size);

}  // namespace lockstep
