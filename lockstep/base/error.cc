#include "lockstep/base/error.h"

#include "lockstep/base/printable.h"

namespace lockstep {

Error::Error(const std::string& message) : std::runtime_error(printable_text(message)) {}

void throw_error(fmt::string_view message, fmt::format_args args) { throw Error(fmt::vformat(message, args)); }

}  // namespace lockstep
