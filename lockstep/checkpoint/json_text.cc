#include "lockstep/checkpoint/json_text.h"

#include <string_view>

#include "lockstep/checkpoint/json_input.h"

namespace lockstep {
namespace {

constexpr std::string_view kMark = "bytes:";

}  // namespace

std::string to_json_text(const std::string& bytes) {
  using nlohmann::json;
  const std::string quoted = json(bytes).dump(-1, ' ', false, json::error_handler_t::ignore);
  if (!bytes.starts_with(kMark) && parse_json<json>(quoted).get<std::string>() == bytes) return bytes;
  std::string text(kMark);
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

std::string from_json_text(const std::string& text) {
  if (!text.starts_with(kMark)) return text;
  const std::string_view digits = std::string_view(text).substr(kMark.size());
  check(digits.size() % 2 == 0 && digits.find_first_not_of("0123456789abcdef") == digits.npos,
        "{}, expected hexadecimal bytes", excerpt(text));
  const auto value = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    bytes += static_cast<char>(value(digits[i]) * 16 + value(digits[i + 1]));
  }
  return bytes;
}

}  // namespace lockstep
