#include "lockstep/base/printable.h"

#include <fmt/format.h>

#include <cstddef>

namespace lockstep {
namespace {

// Whether one whole UTF-8 character is a control character.
bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7f;
  return first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;
}

std::string escaped(std::string_view text, std::string_view kept) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const std::string_view character = text.substr(0, length > 0 ? length : 1);
    if (length > 0 && (!is_control(character) || kept.find(character) != kept.npos)) {
      out += character;
    } else {
      for (const char c : character) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
    text.remove_prefix(character.size());
  }
  return out;
}

}  // namespace

std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto continues = [&](std::size_t i) { return (byte(i) & 0xc0U) == 0x80U; };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return continues(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const bool valid = (first != 0xe0 || second >= 0xa0) && (first != 0xed || second < 0xa0);
    return valid && continues(1) && continues(2) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool valid = (first != 0xf0 || second >= 0x90) && (first != 0xf4 || second < 0x90);
    return valid && continues(1) && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

std::string printable_name(std::string_view name) { return escaped(name, ""); }
std::string printable_text(std::string_view text) { return escaped(text, "\n\t"); }

std::string shell_quoted(std::string_view name) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
  if (!name.empty() && name.find_first_not_of(kPlain) == name.npos) return std::string(name);
  std::string quoted = "'";
  for (const char c : name) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace lockstep
