// Text for character-level language models. A character is one byte.
//
//   const CharacterSet characters(text);
//   TextDataset data(characters.encode(text), {.context = 128, .random_starts = true});
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/dataset.h"

namespace LOCKSTEP_API lockstep {

// The characters that occur in a text, numbered from 0 in ascending order.
class CharacterSet {
 public:
  explicit CharacterSet(std::string_view text);
  std::int64_t size() const { return static_cast<std::int64_t>(characters_.size()); }
  // Throws an Error that names the character if one is not in the set.
  std::vector<std::int64_t> encode(std::string_view text) const;
  std::string decode(std::span<const std::int64_t> ids) const;

 private:
  std::string characters_;
};

struct TextOptions {
  // Number of characters of an example.
  std::int64_t context = 128;
  // For training: each example starts at a random position, which differs in each epoch. Otherwise, each example starts
  // where the previous one ends.
  bool random_starts = false;
};

// Examples are {window, the window one character later}, both i64 [context]: the label of each character is the next
// one. An epoch has as many windows as fit without overlap.
class TextDataset : public Dataset {
 public:
  // `ids` come from CharacterSet::encode. Throws if `ids` is not longer than the context.
  TextDataset(std::vector<std::int64_t> ids, TextOptions options);
  std::int64_t size() const override;
  Example get(std::int64_t index) const override;
  Example get(std::int64_t index, RandomKey key) const override;

 private:
  Example window(std::int64_t start) const;

  std::vector<std::int64_t> ids_;
  TextOptions options_;
};

}  // namespace lockstep
