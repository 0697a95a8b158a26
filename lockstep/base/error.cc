#include "lockstep/base/error.h"

namespace lockstep {

void throw_error(fmt::string_view message, fmt::format_args args) { throw Error(fmt::vformat(message, args)); }

}  // namespace lockstep
