// Names that may have any bytes, for JSON and pictures, which have Unicode.
#pragma once

#include <string>

namespace lockstep::app {

// The text itself if it is UTF-8. Otherwise each byte is a character of Latin-1, so that different names stay
// different.
std::string utf8_text(const std::string& bytes);

}  // namespace lockstep::app
