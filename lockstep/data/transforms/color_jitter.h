// Random changes of brightness, contrast, saturation, and hue.
//
//   auto data = photos | ColorJitter({.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1});
#pragma once

#include "lockstep/data/transforms/image_transform.h"

namespace LOCKSTEP_API lockstep {

// Each option is a range x: a factor is uniform in [max(0, 1 - x), 1 + x], and the shift of the hue in [-x, x] of a
// full turn, with x at most 0.5. 0: no change.
struct ColorJitterOptions {
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
  double hue = 0;
};
// Makes the four changes in random order. Pictures have three channels, or one, which has neither saturation nor hue.
// f32 elements must lie in 0 to 1, so put it before Normalize. u8 elements are rounded after each change.
class ColorJitter : public ImageTransform {
 public:
  explicit ColorJitter(const ColorJitterOptions& options);
};

}  // namespace lockstep
