// Internal: the secret of a job. Only processes that know it may join.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Returns LOCKSTEP_SECRET, or the contents of the file that LOCKSTEP_SECRET_FILE names, without trailing white space;
// empty if neither is set. Throws if both are set, if the file is not private (check_private()), or if the secret is
// easy to guess: fewer than 16 characters, few different characters, or a repeated short text.
std::string read_secret();

// Makes a new secret of 64 hexadecimal digits.
std::string make_secret();

// Appended to errors about a missing secret.
inline constexpr std::string_view kHowToSetSecret =
    "set LOCKSTEP_SECRET, or LOCKSTEP_SECRET_FILE, to the same random text for all ranks (openssl rand -hex 32)";

}  // namespace lockstep
