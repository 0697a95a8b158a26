#include "lockstep/train/markup.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep {
namespace {

// The number of bytes of the character that begins the text; 0 if it is not UTF-8: too long, a surrogate, beyond
// U+10FFFF, or cut short.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
  const std::uint32_t first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  std::uint32_t character = first & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    character = character << 6 | (byte(i) & 0x3F);
  }
  constexpr std::array<std::uint32_t, 5> kLeast{0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = character >= 0xD800 && character < 0xE000;
  return character < kLeast[length] || character > 0x10FFFF || surrogate ? 0 : length;
}

}  // namespace

std::string valid_utf8(std::string_view text) {
  std::string valid;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    valid += length == 0 ? std::string_view("\uFFFD") : text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return valid;
}

std::string escape_markup(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    switch (const char c = text.front()) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '"': escaped += "&quot;"; break;
      case '\'': escaped += "&#39;"; break;
      default:
        if (length == 0 || text.starts_with("\xEF\xBF\xBE") || text.starts_with("\xEF\xBF\xBF")) {
          escaped += "\uFFFD";  // U+FFFE and U+FFFF are no characters of XML
        } else if (length == 1 && (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) && c != '\n' && c != '\t') {
          escaped += ' ';
        } else {
          escaped += text.substr(0, length);
        }
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return escaped;
}

}  // namespace lockstep
