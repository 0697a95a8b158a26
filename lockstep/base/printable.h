// Internal: prepares text from outside the process, such as names in files, for a terminal. A terminal obeys control
// characters in a text: they move its cursor, hide lines, and change its title.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

// Number of bytes of the UTF-8 character at the start of a text that is not empty; 0 if none starts there (RFC 3629).
std::size_t utf8_length(std::string_view text);

// Returns the name with hexadecimal escapes (\x1b) for control characters, including U+0080 to U+009F, and for bytes
// that are not UTF-8. A second call changes nothing, because the result has no such characters or bytes.
std::string printable_name(std::string_view name);
// Does the same as printable_name(), but keeps line ends and tabs.
std::string printable_text(std::string_view text);

// A name as a shell takes it, for commands in messages: in single quotes unless it has only characters that need none.
std::string shell_quoted(std::string_view name);

}  // namespace lockstep
