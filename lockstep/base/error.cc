#include "lockstep/base/error.h"

#include "lockstep/base/printable.h"

namespace lockstep {

// Messages quote what files have, and programs print them.
void throw_error(fmt::string_view message, fmt::format_args args) {
  throw Error(printable_text(fmt::vformat(message, args)));
}

}  // namespace lockstep
