// Internal: any bytes, such as a file's name, as a text of JSON, and back.
#pragma once

#include <string>

namespace lockstep {

// Turns bytes that are not UTF-8, and text that starts with "bytes:", into "bytes:" and hex digits.
std::string to_json_text(const std::string& bytes);
// Throws if "bytes:" is not followed by such digits.
std::string from_json_text(const std::string& text);

}  // namespace lockstep
