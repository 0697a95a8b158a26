#include "lockstep/base/error.h"

#include "lockstep/base/printable.h"

namespace lockstep {

// Escapes control characters, because messages quote the contents of files, and programs print messages.
void throw_error(fmt::string_view message, fmt::format_args args) {
  throw Error(printable_text(fmt::vformat(message, args)));
}

}  // namespace lockstep
