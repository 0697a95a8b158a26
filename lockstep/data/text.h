// Text for language models of characters. A character is a byte.
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
  // Throws, with the character, for one that is not in the set.
  std::vector<std::int64_t> encode(std::string_view text) const;
  std::string decode(std::span<const std::int64_t> ids) const;

 private:
  std::string characters_;
};

struct TextOptions {
  // The characters of an example.
  std::int64_t context = 128;
  // Training: examples begin anywhere, and elsewhere in each epoch. Otherwise one follows the other.
  bool random_starts = false;
};

// Windows of a text, and the same windows one character later: {i64 [context], i64 [context]}. Each character is the
// label of those before it. An epoch has as many windows as fit without overlap.
class TextDataset : public Dataset {
 public:
  // The ids of a CharacterSet. Throws if they are not more than the context.
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
