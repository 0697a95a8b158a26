// Internal: converts texts to parts of SVG and HTML.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Returns the text for element content and quoted attributes: & < > " ' become references, bytes that are not UTF-8
// become U+FFFD, and control characters except line breaks and tabs become spaces, because markup allows neither.
std::string escape_markup(std::string_view text);

// Returns the text with U+FFFD for each byte that is not UTF-8.
std::string valid_utf8(std::string_view text);

}  // namespace lockstep
