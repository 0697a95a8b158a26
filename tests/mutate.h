// Damages valid bytes, for tests of parsers: whatever a file or a stranger says is read or refused.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// The same numbers on every standard library, unlike the distributions.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : bits_(seed) {}
  std::size_t below(std::size_t bound) { return bits_() % bound; }
  // Extreme numbers are more likely to do harm.
  char byte() {
    constexpr unsigned char kEdges[] = {0, 1, 4, 5, 127, 128, 255};
    return static_cast<char>(below(2) == 0 ? kEdges[below(std::size(kEdges))] : below(256));
  }
  std::string bytes(std::size_t most) {
    std::string text(below(most + 1), '\0');
    std::generate(text.begin(), text.end(), [this] { return byte(); });
    return text;
  }

 private:
  std::mt19937_64 bits_;
};

struct Mutations {
  // Pieces of the format. They are inserted, and replace other bytes and digits.
  std::span<const std::string_view> pieces{};
  // Half of the changes begin in so many first bytes, where a format has its header; 0: no part is special.
  std::size_t front = 0;
};

// One change of a text that is not empty.
inline void mutate(std::string& text, Dice& dice, const Mutations& mutations = {}) {
  const bool in_front = mutations.front > 0 && dice.below(2) == 0;
  const std::size_t at = dice.below(in_front ? std::min(text.size(), mutations.front) : text.size());
  const std::size_t length = dice.below(std::min<std::size_t>(text.size() - at, 24) + 1);
  const auto piece = [&] {
    const auto& pieces = mutations.pieces;
    return pieces.empty() ? dice.bytes(8) : std::string(pieces[dice.below(pieces.size())]);
  };
  switch (dice.below(8)) {
    case 0: text[at] = static_cast<char>(text[at] ^ (1 << dice.below(8))); break;
    case 1: text[at] = dice.byte(); break;
    case 2: text.erase(at, length); break;
    case 3: text.insert(at, text.substr(dice.below(text.size()), length)); break;
    case 4: text.insert(at, piece()); break;
    case 5: text.replace(at, length, piece()); break;
    case 6: text.resize(at); break;
    case 7: {  // another number where there is one: a syntax hides this damage
      const std::size_t digit = text.find_first_of("0123456789", at);
      if (digit != std::string::npos) text.replace(digit, 1, piece());
      break;
    }
  }
}

// The text after one to four changes.
inline std::string mutated(std::string text, Dice& dice, const Mutations& mutations = {}) {
  for (std::size_t left = 1 + dice.below(4); left > 0 && !text.empty(); --left) mutate(text, dice, mutations);
  return text;
}

}  // namespace lockstep
