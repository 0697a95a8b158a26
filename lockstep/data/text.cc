#include "lockstep/data/text.h"

#include <array>

namespace lockstep {

CharacterSet::CharacterSet(std::string_view text) {
  std::array<bool, 256> occurs{};
  for (char c : text) occurs[static_cast<unsigned char>(c)] = true;
  for (std::size_t byte = 0; byte < occurs.size(); ++byte) {
    if (occurs[byte]) characters_ += static_cast<char>(byte);
  }
}

std::vector<std::int64_t> CharacterSet::encode(std::string_view text) const {
  std::array<std::int64_t, 256> ids{};
  ids.fill(-1);
  for (std::size_t id = 0; id < characters_.size(); ++id) {
    ids[static_cast<unsigned char>(characters_[id])] = static_cast<std::int64_t>(id);
  }
  std::vector<std::int64_t> numbers;
  numbers.reserve(text.size());
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    check(ids[byte] >= 0, "text: character '{}' (byte {}) is not one of the {} known ones",
          byte >= 32 && byte < 127 ? std::string(1, c) : "?", byte, size());
    numbers.push_back(ids[byte]);
  }
  return numbers;
}

std::string CharacterSet::decode(std::span<const std::int64_t> ids) const {
  std::string text;
  for (std::int64_t id : ids) {
    check(id >= 0 && id < size(), "text: character number {} is out of range [0, {})", id, size());
    text += characters_[static_cast<std::size_t>(id)];
  }
  return text;
}

TextDataset::TextDataset(std::vector<std::int64_t> ids, TextOptions options) : ids_(std::move(ids)), options_(options) {
  check(options.context > 0, "text: a context of {} characters, expected at least 1", options.context);
  check(size() > 0, "text: {} characters, expected more than the context of {}", ids_.size(), options.context);
}

std::int64_t TextDataset::size() const { return (static_cast<std::int64_t>(ids_.size()) - 1) / options_.context; }

Example TextDataset::window(std::int64_t start) const {
  const std::span<const std::int64_t> from = std::span(ids_).subspan(static_cast<std::size_t>(start));
  const auto length = static_cast<std::size_t>(options_.context);
  const Shape shape{options_.context};
  return {Tensor::from(from.first(length), shape), Tensor::from(from.subspan(1, length), shape)};
}

Example TextDataset::get(std::int64_t index) const {
  check(index >= 0 && index < size(), "text: example {} is out of range [0, {})", index, size());
  return window(index * options_.context);
}

Example TextDataset::get(std::int64_t index, RandomKey key) const {
  if (!options_.random_starts) return get(index);
  const auto starts = static_cast<std::uint64_t>(ids_.size()) - static_cast<std::uint64_t>(options_.context);
  return window(static_cast<std::int64_t>(random_below(key, 0, starts)));
}

}  // namespace lockstep
