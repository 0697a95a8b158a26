// Internal: texts as parts of SVG and HTML.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// The text for element content and for attributes in quotes. & < > " ' become references. Whatever is not UTF-8 becomes
// U+FFFD, and a control character a space, except for line breaks and tabs: markup allows neither.
std::string escape_markup(std::string_view text);

// The text with U+FFFD for each byte that is not UTF-8.
std::string valid_utf8(std::string_view text);

}  // namespace lockstep
