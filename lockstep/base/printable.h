// Internal: text from outside the process, such as names in files, on its way to a person. A terminal obeys the control
// characters in a text: they move its cursor, hide lines, and change its title.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

// The number of bytes of the UTF-8 character that begins a text that is not empty; 0 if there is none (RFC 3629).
std::size_t utf8_length(std::string_view text);

// With hexadecimal escapes (\x1b) for control characters, U+0080 to U+009F among them, and for bytes that are not
// UTF-8. The result has none of them, so a second call changes nothing.
std::string printable_name(std::string_view name);
// The same, but line ends and tabs stay.
std::string printable_text(std::string_view text);

// A name as a shell takes it, for commands in messages: in single quotes unless it has only characters that need none.
std::string shell_quoted(std::string_view name);

}  // namespace lockstep
