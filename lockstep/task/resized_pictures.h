// Internal: pictures in the size that a model sees.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/data/image_folder.h"
#include "lockstep/data/transforms/image_transform.h"

namespace lockstep {

// Number of bytes that the pictures of a run may take: 1 GiB, or a tenth of what this process may still use if less.
std::uint64_t memory_for_pictures();

// The pictures of `inner`, {u8 [channels, height, width], label}, in one size. Keeps the pictures that are asked for
// first in memory, up to `room` bytes, so that opening the data, a receipt, and all epochs decode a picture once.
class ResizedPictures : public Dataset {
 public:
  // `sizes` and `channels`: those of `inner`.
  ResizedPictures(std::shared_ptr<const Dataset> inner, const ImageFolder::Sizes& sizes, std::int64_t channels,
                  ImageSize size, std::uint64_t room);
  // Whether all pictures of `inner` have the size already, so that nothing is resized.
  bool unchanged() const { return unchanged_; }
  std::int64_t size() const override { return inner_->size(); }
  using Dataset::get;
  Example get(std::int64_t index) const override;
  Example raw(std::int64_t index) const override { return unchanged_ ? get(index) : inner_->raw(index); }

 private:
  std::shared_ptr<const Dataset> inner_;
  ImageTransform resize_;
  bool unchanged_;
  // Slots, taken in the order in which pictures come, in one block of memory that is untouched until then. Separate
  // blocks, between those of decoded pictures, would leave holes that malloc does not use.
  Shape shape_;  // of a picture
  std::int64_t slots_ = 0;
  std::unique_ptr<std::uint8_t[]> pixels_;
  mutable std::vector<std::int64_t> labels_;
  mutable std::atomic<std::int64_t> taken_ = 0;
  mutable std::vector<std::atomic<std::int64_t>> slot_of_;  // slot + 1 once it is filled, else 0
};

}  // namespace lockstep
