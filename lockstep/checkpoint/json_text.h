// Internal: any bytes, such as a file's name, as a text of JSON, and back.
#pragma once

#include <string>

namespace lockstep {

// JSON has Unicode, a file any bytes: what is not UTF-8 is written in hexadecimal digits, with a mark in front.
std::string to_json_text(const std::string& bytes);
// Throws for a mark without such digits.
std::string from_json_text(const std::string& text);

}  // namespace lockstep
