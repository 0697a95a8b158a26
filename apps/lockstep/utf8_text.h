// Converts names that may have any bytes to Unicode, for JSON and pictures.
#pragma once

#include <string>

namespace lockstep::app {

// Returns the text itself if it is UTF-8. Otherwise reads each byte as a character of Latin-1, so that different names
// that are not UTF-8 stay different.
std::string utf8_text(const std::string& bytes);

}  // namespace lockstep::app
