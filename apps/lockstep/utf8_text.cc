#include "apps/lockstep/utf8_text.h"

#include <nlohmann/json.hpp>

namespace lockstep::app {

std::string utf8_text(const std::string& bytes) {
  try {
    nlohmann::json(bytes).dump();
    return bytes;
  } catch (const nlohmann::json::type_error&) {  // not UTF-8
  }
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      text += c;
    } else {
      text += static_cast<char>(0xc0 | byte >> 6);
      text += static_cast<char>(0x80 | (byte & 0x3f));
    }
  }
  return text;
}

}  // namespace lockstep::app
