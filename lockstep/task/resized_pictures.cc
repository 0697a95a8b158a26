#include "lockstep/task/resized_pictures.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms/augmentation.h"
#include "lockstep/device/file_memory.h"

namespace lockstep {

std::uint64_t memory_for_pictures() {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 30;
  return std::min(kMost, memory_left() / 15 * 2);  // a tenth: memory_left() is three quarters
}

ResizedPictures::ResizedPictures(std::shared_ptr<const Dataset> inner, const ImageFolder::Sizes& sizes,
                                 std::int64_t channels, ImageSize size, std::uint64_t room)
    : inner_(std::move(inner)), resize_(augmentation(Augment::none, size)),
      unchanged_(sizes.min_height == size.height && sizes.max_height == size.height && sizes.min_width == size.width &&
                 sizes.max_width == size.width),
      slot_of_(static_cast<std::size_t>(inner_->size())) {
  const std::int64_t fit = static_cast<std::int64_t>(room) / (channels * size.height * size.width);
  shape_ = {channels, size.height, size.width};
  slots_ = std::min(fit, inner_->size());
  pixels_ = std::make_unique_for_overwrite<std::uint8_t[]>(static_cast<std::size_t>(slots_ * shape_.numel()));
  labels_.resize(static_cast<std::size_t>(slots_));
}

Example ResizedPictures::get(std::int64_t index) const {
  check(index >= 0 && index < size(), "pictures: example {} is out of range [0, {})", index, size());
  const auto bytes = static_cast<std::size_t>(shape_.numel());
  std::atomic<std::int64_t>& slot_of = slot_of_[static_cast<std::size_t>(index)];
  if (const auto filled = static_cast<std::size_t>(slot_of.load(std::memory_order_acquire)); filled > 0) {
    Tensor picture = Tensor::host(shape_, DType::u8);
    std::memcpy(picture.data_ptr<std::uint8_t>(), pixels_.get() + (filled - 1) * bytes, bytes);
    return {picture, Tensor::from({labels_[filled - 1]}, Shape{})};
  }
  Example example = inner_->get(index);
  example.at(0) = resize_(example[0]);
  if (taken_ >= slots_) return example;
  const std::int64_t slot = taken_++;
  if (slot >= slots_) return example;
  std::memcpy(pixels_.get() + static_cast<std::size_t>(slot) * bytes, example[0].data_ptr<std::uint8_t>(), bytes);
  labels_[static_cast<std::size_t>(slot)] = example.at(1).item<std::int64_t>();
  slot_of.store(slot + 1, std::memory_order_release);
  return example;
}

}  // namespace lockstep
