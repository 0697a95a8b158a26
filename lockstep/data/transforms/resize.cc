#include "lockstep/data/transforms/resize.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "lockstep/data/transforms/pixels.h"
#include "lockstep/data/transforms/resample.h"

namespace lockstep {
namespace {

std::string interpolation_text(const ResizeOptions& options) {
  return options.interpolation == Interpolation::nearest ? ", interpolation=nearest" : "";
}

ImageTransform::Function resize_edge(std::int64_t edge, Interpolation interpolation) {
  check_size("Resize", {edge, edge});
  check_interpolation("Resize", interpolation);
  return [=](const Tensor& image, RandomKey) {
    const auto [channels, height, width] = image_extents("Resize", image);
    const ImageSize size =
        height <= width ? ImageSize{edge, edge * width / height} : ImageSize{edge * height / width, edge};
    return resample("Resize", image, {0, 0, height, width}, size, interpolation);
  };
}

ImageTransform::Function resize_to(ImageSize size, Interpolation interpolation) {
  check_size("Resize", size);
  check_interpolation("Resize", interpolation);
  return [=](const Tensor& image, RandomKey) {
    const auto [channels, height, width] = image_extents("Resize", image);
    return resample("Resize", image, {0, 0, height, width}, size, interpolation);
  };
}

ImageTransform::Function resize_and_crop(ImageSize size, Interpolation interpolation) {
  check_size("ResizeAndCrop", size);
  check_interpolation("ResizeAndCrop", interpolation);
  return [=](const Tensor& image, RandomKey) {
    const auto [channels, height, width] = image_extents("ResizeAndCrop", image);
    // The ratios are compared without division.
    std::int64_t h = height, w = width;
    if (height * size.width > size.height * width) {
      h = std::max<std::int64_t>(1, width * size.height / size.width);
    } else {
      w = std::max<std::int64_t>(1, height * size.width / size.height);
    }
    return resample("ResizeAndCrop", image, {(height - h) / 2, (width - w) / 2, h, w}, size, interpolation);
  };
}

}  // namespace

Resize::Resize(std::int64_t shorter_edge, const ResizeOptions& options)
    : ImageTransform(fmt::format("Resize({}{})", shorter_edge, interpolation_text(options)),
                     resize_edge(shorter_edge, options.interpolation)) {}

Resize::Resize(ImageSize size, const ResizeOptions& options)
    : ImageTransform(fmt::format("Resize(({}, {}){})", size.height, size.width, interpolation_text(options)),
                     resize_to(size, options.interpolation)) {}

ResizeAndCrop::ResizeAndCrop(std::int64_t size, const ResizeOptions& options)
    : ResizeAndCrop(ImageSize{size, size}, options) {}

ResizeAndCrop::ResizeAndCrop(ImageSize size, const ResizeOptions& options)
    : ImageTransform(fmt::format("ResizeAndCrop({}{})", size_text(size), interpolation_text(options)),
                     resize_and_crop(size, options.interpolation)) {}

}  // namespace lockstep
